"""A URL's parts as the client that connects reads them.

Other readers see other hosts: digits in full width are a name to ``urllib`` and an address to
``yarl``, which aiohttp connects by. What is judged must be what is connected to.
"""

import ipaddress
import re
import socket
from dataclasses import dataclass

from yarl import URL

_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


class HostError(ValueError):
    """A host that clients read differently."""


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """Where a URL leads.

    Attributes:
        scheme: in small letters.
        host: as it is looked up or connected to.
        literal: the host where it is an address, for no resolver is asked for such; else empty.
    """

    scheme: str
    host: str
    literal: str


def place_of(url: str) -> UrlTarget:
    """Reads a URL.

    Raises:
        HostError: it names an address in an unusual spelling; the message can be shown.
        ValueError: it names no host; the message may hold parts of the URL.
    """
    parsed = URL(url)
    host = parsed.raw_host
    if not parsed.absolute or not host:
        raise ValueError("it names no host")
    require_canonical(host)
    try:
        literal = str(ipaddress.ip_address(host))
    except ValueError:
        literal = ""
    return UrlTarget(parsed.scheme, host, literal)


def require_canonical(host: str) -> None:
    """Refuses what one client reads as an IPv4 address and another as a name: ``127.1``, ``0x7f``.

    Raises:
        HostError: the host is such; says how it is written.
    """
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    else:
        return  # an IPv6 address, or four numbers without leading zeros
    last = host.removesuffix(".").rpartition(".")[2]
    if _NUMBER.fullmatch(last) or _is_address(host):
        raise HostError(
            f"{host} is not a name and not an address: write an IPv4 address as four numbers"
            " from 0 to 255, without leading zeros"
        )


def _is_address(host: str) -> bool:
    """Whether the C library reads it as an IPv4 address."""
    try:
        socket.inet_aton(host)
    except (OSError, ValueError):
        return False
    return True


def origin(url: str) -> str:
    """Scheme, host and port, without user and password; empty where there are none."""
    try:
        return str(URL(url).origin())
    except ValueError:
        return ""


def shown(url: str) -> str:
    """A URL without what may be secret in it: user, password and query."""
    try:
        parsed = URL(url)
        scheme = f"{parsed.scheme}:" if parsed.scheme else ""
        return f"{parsed.origin() if parsed.absolute else scheme}{parsed.raw_path}"
    except ValueError:
        return "a URL that cannot be read"
