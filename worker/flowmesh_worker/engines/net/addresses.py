"""Which network addresses users may have content fetched from, and requests sent to.

A URL is judged by the addresses that its name resolves to, at the moment of connecting and for each
redirect, and the connection goes to exactly the address that was judged.
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

ALLOW_VARIABLE = "FLOWMESH_IMPORT_ALLOW"
"""Networks that an administrator opens to imports, such as ``10.1.0.0/16``, separated by commas."""

REQUEST_ALLOW_VARIABLE = "FLOWMESH_HTTP_ALLOW"
"""Networks that an administrator opens to requests (``http.request`` and its kin) in the same way;
apart from imports, since a request can also change what it reaches."""

REFUSE_VARIABLE = "FLOWMESH_IMPORT_REFUSE"
"""Further networks that neither may reach, such as a cluster's public ranges."""

_INSTEAD = {ALLOW_VARIABLE: "upload the file with fmesh, or "}
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
_V4_BITS = 0xFFFFFFFF
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressRule:
    """Says which addresses may be reached."""

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        refused: Sequence[Network] = (),
        opened_by: str = ALLOW_VARIABLE,
    ) -> None:
        """Takes the exceptions to the rule that only public addresses may be reached.

        Args:
            allowed: networks that are opened.
            refused: networks that are closed although they are public.
            opened_by: the variable that opens networks, for errors.
        """
        self._allowed = allowed
        self._refused = refused
        self._opened_by = opened_by

    @classmethod
    def from_environment(cls, opened_by: str = ALLOW_VARIABLE) -> "AddressRule":
        """The rule with an administrator's exceptions.

        Args:
            opened_by: the variable that opens networks: ``ALLOW_VARIABLE`` for imports,
                ``REQUEST_ALLOW_VARIABLE`` for requests.

        Raises:
            ValueError: a variable holds something that is no network.
        """
        return cls(_networks(opened_by), _networks(REFUSE_VARIABLE), opened_by)

    def permits(self, text: str) -> bool:
        """Whether an address may be reached."""
        address = _meant(ipaddress.ip_address(text.partition("%")[0]))
        if self.opened(text):
            return True
        if any(address in n for n in self._refused if n.version == address.version):
            return False
        return address.is_global and not address.is_multicast

    def opened(self, text: str) -> bool:
        """Whether an administrator opened an address by name."""
        address = _meant(ipaddress.ip_address(text.partition("%")[0]))
        return any(address in n for n in self._allowed if n.version == address.version)

    def require(self, host: str, addresses: Sequence[str]) -> None:
        """Refuses a host any of whose addresses may not be reached.

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
        """Refuses a host that is asked without encryption, unless an administrator opened it.

        Raises:
            AttemptError: kind ``bad-input``; names the host.
        """
        if not all(self.opened(address) for address in addresses):
            raise AttemptError(
                Failure(FailureKind.BAD_INPUT, f"http://{host} is not encrypted", "use https:")
            )


class JudgingResolver(AbstractResolver):
    """Resolves names and lets only permitted addresses through to the connection."""

    def __init__(self, rule: AddressRule, *, opened_only: bool = False) -> None:
        """Takes the rule, and whether to let through what an administrator opened alone."""
        self._rule = rule
        self._opened_only = opened_only
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host, all of them permitted.

        Raises:
            AttemptError: one of them is not.
            OSError: the name does not resolve.
        """
        found = await self._inner.resolve(host, port, family)
        addresses = [r["host"] for r in found]
        self._rule.require(host, addresses)
        if self._opened_only:
            self._rule.require_opened(host, addresses)
        return found

    async def close(self) -> None:
        """Closes the resolver."""
        await self._inner.close()


async def require_public(url: str, rule: AddressRule | None = None) -> None:
    """Judges the host of a URL that another client will connect to, such as an S3 endpoint.

    Raises:
        AttemptError: kind ``bad-input``; one of its addresses may not be reached.
        OSError: the name does not resolve.
    """
    host = urlsplit(url).hostname or ""
    resolver = JudgingResolver(rule or AddressRule.from_environment())
    try:
        await resolver.resolve(host, 0, socket.AF_UNSPEC)
    finally:
        await resolver.close()


def _meant(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that only carries it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _TRANSLATED:
            return ipaddress.IPv4Address(int(address) & _V4_BITS)
    return address


def _networks(variable: str) -> list[Network]:
    given: Any = os.environ.get(variable, "")
    return [ipaddress.ip_network(n.strip()) for n in given.split(",") if n.strip()]
