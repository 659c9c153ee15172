"""A router's connection to the hub of one worker; the hub dials."""

import asyncio
import logging
from typing import Protocol

from flowmesh_core.protocol.framed_connection import FramedConnection
from flowmesh_core.protocol.serving import (
    FRAME_BYTES_MAX,
    SERVING_VERSION,
    CallEnded,
    CallRefused,
    FromRouter,
    HubHello,
    Piece,
    ReplicaLoad,
    ReplicaLoads,
    RouterRefused,
    RouterWelcome,
    ToRouter,
)

_log = logging.getLogger(__name__)


class HubListener(Protocol):
    """The parts of the router that a link's frames are for."""

    def loads_changed(self, link: "HubLink", loads: tuple[ReplicaLoad, ...]) -> None:
        """Records the replicas of a hub."""
        ...

    def reply(self, link: "HubLink", message: Piece | CallEnded | CallRefused) -> None:
        """Deals with a frame of a call."""
        ...

    def lost(self, link: "HubLink") -> None:
        """Forgets a hub, and ends the calls that it has."""
        ...


class HubLink(FramedConnection[ToRouter], asyncio.Protocol):
    """One hub.

    Attributes:
        worker: its worker's name; empty before its hello.
    """

    def __init__(self, listener: HubListener) -> None:
        super().__init__(
            ToRouter,
            self._receive,
            lambda: listener.lost(self),
            lambda send: asyncio.get_running_loop().call_soon(send),
            FRAME_BYTES_MAX,
        )
        self.worker = ""
        self._listener = listener

    def answer(self, message: FromRouter) -> None:
        """Sends a frame to the hub."""
        self.send(message)

    def _receive(self, message: ToRouter) -> None:
        match message:
            case HubHello():
                self._welcome(message)
            case _ if not self.worker:
                self._refuse("the first frame was not a hello")
            case ReplicaLoads(replicas=replicas):
                self._listener.loads_changed(self, replicas)
            case _:
                self._listener.reply(self, message)

    def _welcome(self, hello: HubHello) -> None:
        if hello.version != SERVING_VERSION:
            self._refuse(f"version {hello.version} of the protocol: expected {SERVING_VERSION}")
            return
        self.worker = hello.worker
        self.answer(RouterWelcome(SERVING_VERSION))
        self._listener.loads_changed(self, hello.replicas)

    def _refuse(self, reason: str) -> None:
        _log.warning("refused the hub of %s: %s", self.worker or "a worker", reason)
        self.answer(RouterRefused(reason))
        self.close()
