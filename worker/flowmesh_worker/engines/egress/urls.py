"""Parses a URL exactly as the client that connects does.

Parsers disagree: full-width digits are a name for ``urllib`` and an address for ``yarl``, which
aiohttp uses. The host that is checked must be the host that is connected to.
"""

import ipaddress
import re
import socket
from dataclasses import dataclass

from yarl import URL

_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


class HostError(ValueError):
    """A host that clients interpret differently."""


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """The host that a URL leads to.

    Attributes:
        scheme: in lower case.
        host: as it is resolved or connected to.
        literal: the host if it is an address, which is not resolved; else empty.
    """

    scheme: str
    host: str
    literal: str


def parse_target(url: str) -> UrlTarget:
    """Parses a URL.

    Raises:
        HostError: the host is an address in an unusual spelling; the message can be shown.
        ValueError: there is no host; the message may contain secret parts of the URL.
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
    """Refuses a host that is an IPv4 address for one client and a name for another: ``0x7f``.

    Raises:
        HostError: the host is ambiguous; the message says how to write it.
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
            f"{host} is neither a name nor an address: write an IPv4 address as four numbers"
            " from 0 to 255, without leading zeros"
        )


def _is_address(host: str) -> bool:
    """Whether the C library parses it as an IPv4 address."""
    try:
        socket.inet_aton(host)
    except (OSError, ValueError):
        return False
    return True


def origin(url: str) -> str:
    """Returns scheme, host and port, without user and password; empty if there are none."""
    try:
        return str(URL(url).origin())
    except ValueError:
        return ""


def redacted(url: str) -> str:
    """Returns a URL without the parts that may be secret: user, password and query."""
    try:
        parsed = URL(url)
        scheme = f"{parsed.scheme}:" if parsed.scheme else ""
        return f"{parsed.origin() if parsed.absolute else scheme}{parsed.raw_path}"
    except ValueError:
        return "a URL that cannot be read"
