"""A URL's parts as the client that connects reads them.

Other readers see other hosts: digits in full width are a name to ``urllib`` and an address to
``yarl``, which aiohttp connects by. What is judged must be what is connected to.
"""

import ipaddress
from dataclasses import dataclass

from yarl import URL


@dataclass(frozen=True, slots=True)
class Place:
    """Where a URL leads.

    Attributes:
        scheme: in small letters.
        host: as it is looked up or connected to.
        literal: the host where it is an address, for no resolver is asked for such; else empty.
    """

    scheme: str
    host: str
    literal: str


def place_of(url: str) -> Place:
    """Reads a URL.

    Raises:
        ValueError: it names no host.
    """
    parsed = URL(url)
    host = parsed.raw_host
    if not parsed.absolute or not host:
        raise ValueError("it names no host")
    try:
        literal = str(ipaddress.ip_address(host))
    except ValueError:
        literal = ""
    return Place(parsed.scheme, host, literal)


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
