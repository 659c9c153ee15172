"""The part of a hub that deals with values between hubs."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flowmesh_core.protocol.serving import PeerRefused, PeerValue
from flowmesh_worker.ipc.passed_values import StageBytes


class Peer(NamedTuple):
    """The hub that sent a value: the router has to have named it with this key."""

    worker: str
    key: str


class PeerReceiver(Protocol):
    """The part of the hub that deals with values between peers."""

    def add_peer_value(
        self, peer: Peer, value: PeerValue, data: StageBytes, refuse: Callable[[], None]
    ) -> None:
        """Adds a value, or calls ``refuse`` at once or later.

        Raises:
            ProtocolError: the peer may not send it; the link is closed.
        """
        ...

    def peer_refused(self, worker: str, refused: PeerRefused) -> None:
        """Has the router route a request again whose value a peer did not take."""
        ...

    def peer_lost(self, worker: str) -> None:
        """Deals with values that may not have arrived at a peer."""
        ...
