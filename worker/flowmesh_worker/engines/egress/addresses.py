"""Decides which network addresses imports and requests of users may reach.

A URL is judged by the addresses that its host name resolves to, when connecting and at each
redirect, and the connection goes to exactly the address that was checked.
"""

import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.egress.urls import HostError, require_canonical

ALLOW_VARIABLE = "FLOWMESH_IMPORT_ALLOW"
"""Networks that an administrator allows for imports, such as ``10.1.0.0/16``; comma-separated."""

REQUEST_ALLOW_VARIABLE = "FLOWMESH_HTTP_ALLOW"
"""Networks that an administrator allows for requests (``http.request``, ``http.chat``, the tool
``http``); separate from imports, since a request can also change what it reaches."""

REFUSE_VARIABLE = "FLOWMESH_IMPORT_REFUSE"
"""Public networks that neither imports nor requests may reach, such as a cluster's own ranges."""

_INSTEAD = {ALLOW_VARIABLE: "upload the file with fmesh, or "}
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_CARRIERS = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96")))
"""IPv4-mapped addresses and the NAT64 prefix: the last 32 bits are the address that is reached."""
_V4_BITS = 0xFFFFFFFF
_NOT_PUBLIC_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8",
            "168.63.129.16/32",  # the wire server of Azure's machines
            "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
            "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        ),
    )
)  # fmt: skip
"""RFC 6890 and later registrations, independent of the standard library's release."""
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
"""All allocated addresses; site-local, local NAT64 and IPv4-translated ones are outside."""
_NOT_PUBLIC_V6 = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The first half of an interface id whose second half is an IPv4 address (RFC 5214)."""


class AddressPolicy:
    """Decides which addresses may be reached: public ones, with an administrator's exceptions."""

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        refused: Sequence[Network] = (),
        opened_by: str = ALLOW_VARIABLE,
    ) -> None:
        """Creates a policy.

        Args:
            allowed: networks that may be reached.
            refused: networks that may not be reached although they are public.
            opened_by: the variable that allows networks, for errors.
        """
        self._allowed = allowed
        self._refused = refused
        self._opened_by = opened_by

    @classmethod
    def from_environment(cls, opened_by: str = ALLOW_VARIABLE) -> "AddressPolicy":
        """Returns the policy with the exceptions of the environment.

        Args:
            opened_by: the variable that allows networks: ``ALLOW_VARIABLE`` for imports,
                ``REQUEST_ALLOW_VARIABLE`` for requests.

        Raises:
            ValueError: a variable contains something that is not a network.
        """
        return cls(_networks(opened_by), _networks(REFUSE_VARIABLE), opened_by)

    def permits(self, text: str) -> bool:
        """Whether an address may be reached."""
        address = _embedded_v4(ipaddress.ip_address(text.partition("%")[0]))
        if self.opened(text):
            return True
        if any(address in n for n in self._refused if n.version == address.version):
            return False
        return is_public(address)

    def opened(self, text: str) -> bool:
        """Whether an administrator allowed the network of an address."""
        address = _embedded_v4(ipaddress.ip_address(text.partition("%")[0]))
        return any(address in n for n in self._allowed if n.version == address.version)

    def require(self, host: str, addresses: Sequence[str]) -> None:
        """Refuses a host if one of its addresses may not be reached.

        Raises:
            AttemptError: kind ``bad-input``; names host and address.
        """
        for address in addresses:
            if not self.permits(address):
                raise AttemptError(
                    Failure(
                        FailureKind.BAD_INPUT,
                        f"{host} is at {address}, which is not a public address; "
                        "workflows do not reach private, link-local or cluster networks",
                        f"{_INSTEAD.get(self._opened_by, '')}ask an administrator to open the "
                        f"network with {self._opened_by}",
                    )
                )

    def require_opened(self, host: str, addresses: Sequence[str]) -> None:
        """Refuses an unencrypted connection to a host unless an administrator allowed its network.

        Raises:
            AttemptError: kind ``bad-input``; names the host.
        """
        if not all(self.opened(address) for address in addresses):
            raise AttemptError(
                Failure(FailureKind.BAD_INPUT, f"http://{host} is not encrypted", "use https:")
            )


class FilteringResolver(AbstractResolver):
    """Resolves host names for aiohttp and refuses addresses that may not be reached."""

    def __init__(self, rule: AddressPolicy, *, opened_only: bool = False) -> None:
        """Creates a resolver.

        Args:
            rule: decides about addresses.
            opened_only: permit only networks that an administrator allowed, for plain http.
        """
        self._rule = rule
        self._opened_only = opened_only
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Returns the addresses of a host, all of them permitted.

        Raises:
            AttemptError: one is not, or the host is an address in an unusual spelling.
            OSError: the name does not resolve.
        """
        try:
            require_canonical(host)
        except HostError as error:
            raise AttemptError(Failure(FailureKind.BAD_INPUT, str(error))) from None
        found = await self._inner.resolve(host, port, family)
        addresses = [r["host"] for r in found]
        self._rule.require(host, addresses)
        if self._opened_only:
            self._rule.require_opened(host, addresses)
        return found

    async def close(self) -> None:
        """Closes the resolver."""
        await self._inner.close()


async def require_public(
    url: str, rule: AddressPolicy | None = None, *, opened_only: bool = False
) -> None:
    """Checks the host of a URL that another client will connect to, such as an S3 endpoint.

    That client resolves the name again. With ``https:`` it reaches no other server, as that would
    need a certificate for the name.

    Args:
        url: of the server.
        rule: decides about addresses; by default that of the environment.
        opened_only: permit only networks that an administrator allowed, for plain http.

    Raises:
        AttemptError: kind ``bad-input``; one of its addresses may not be reached.
        OSError: the name does not resolve.
    """
    host = urlsplit(url).hostname or ""
    rule = rule or AddressPolicy.from_environment()
    resolver = FilteringResolver(rule, opened_only=opened_only)
    try:
        await resolver.resolve(host, 0, socket.AF_UNSPEC)
    finally:
        await resolver.close()


def is_public(address: Address) -> bool:
    """Whether an address is public; an embedded IPv4 address decides."""
    address = _embedded_v4(address)
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in n for n in _NOT_PUBLIC_V4)
    if address not in _PUBLIC_V6 or any(address in n for n in _NOT_PUBLIC_V6):
        return False
    return (int(address) >> 32) & _V4_BITS not in _ISATAP


def _embedded_v4(address: Address) -> Address:
    """Returns the IPv4 address that an IPv6 address embeds, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and any(address in n for n in _CARRIERS):
        return ipaddress.IPv4Address(int(address) & _V4_BITS)
    return address


def _networks(variable: str) -> list[Network]:
    given: Any = os.environ.get(variable, "")
    return [ipaddress.ip_network(n.strip()) for n in given.split(",") if n.strip()]
