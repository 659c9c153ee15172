"""Bounds how many connections may be open that have shown no valid token.

A server counts a connection from its start until a request on it has been authenticated, or it is
closed. Peers behind one proxy or Service share an address, so the limits are settings.
"""

import ipaddress
from collections import Counter
from enum import StrEnum
from typing import Protocol, runtime_checkable

from aiohttp import web

_IPV6_SITE_BITS = 64


class ConnectionLimit(StrEnum):
    """Which limit refused a connection."""

    PEER = "peer"
    TOTAL = "total"


class UnverifiedConnections:
    """The open connections of a server that have shown no valid token.

    Attributes:
        refused: how many connections each limit refused.
    """

    def __init__(self, per_peer: int, total: int) -> None:
        """Starts without connections.

        Args:
            per_peer: the most of one peer: an IPv4 address, or an IPv6 network of 64 bits.
            total: the most of all peers.
        """
        self.refused = Counter[ConnectionLimit]()
        self._per_peer = per_peer
        self._total = total
        self._peers = Counter[str]()
        self._count = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    def add(self, peer: str) -> ConnectionLimit | None:
        """Counts a new connection; returns the limit that refuses it, or None."""
        if self._count >= self._total:
            refused = ConnectionLimit.TOTAL
        elif self._peers[peer] >= self._per_peer:
            refused = ConnectionLimit.PEER
        else:
            self._count += 1
            self._peers[peer] += 1
            return None
        self.refused[refused] += 1
        return refused

    def remove(self, peer: str) -> None:
        """Stops counting a connection: it is closed, or its user is known."""
        self._count -= 1
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]


@runtime_checkable
class VerifiableConnection(Protocol):
    """A connection that counts until its user is known."""

    def verified(self) -> None:
        """Stops counting the connection among those without a valid token."""
        ...


def mark_verified(request: web.Request) -> None:
    """Notes that a request has a valid token: its connection counts no more."""
    if isinstance(request.protocol, VerifiableConnection):
        request.protocol.verified()


def peer_of(address: object) -> str:
    """Returns the peer of a socket's remote address; empty for a Unix socket.

    A host usually has a whole IPv6 network of 64 bits, so that network is one peer.
    """
    if not isinstance(address, tuple):
        return ""
    host = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if isinstance(host, ipaddress.IPv4Address):
        return str(host)
    if host.ipv4_mapped is not None:
        return str(host.ipv4_mapped)
    return str(ipaddress.ip_network((host, _IPV6_SITE_BITS), strict=False))
