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
    ReplicaLoads,
    RouterRefused,
    RouterWelcome,
    StageFailed,
    StageValue,
    ToRouter,
    UseGraph,
)
from flowmesh_core.stages.service_graph import LoadedGraph

_log = logging.getLogger(__name__)


FromHubCall = Piece | CallEnded | CallRefused | StageValue | StageFailed


class HubListener(Protocol):
    """The parts of the router that a link's frames are for."""

    def loads_changed(self, link: "HubLink", loads: ReplicaLoads) -> None:
        """Records the replicas of a hub, and what its stages have passed on and dropped."""
        ...

    def reply(self, link: "HubLink", message: FromHubCall) -> None:
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
        self._graphs: set[str] = set()
        self._listener = listener

    def answer(self, message: FromRouter) -> None:
        """Sends a frame to the hub."""
        self.send(message)

    def use_graph(self, graph: LoadedGraph) -> None:
        """Sends a graph to the hub, once."""
        if graph.digest not in self._graphs:
            self._graphs.add(graph.digest)
            self.send(UseGraph(graph.graph))

    def _receive(self, message: ToRouter) -> None:
        match message:
            case HubHello():
                self._welcome(message)
            case _ if not self.worker:
                self._refuse("the first frame was not a hello")
            case ReplicaLoads():
                self._listener.loads_changed(self, message)
            case _:
                self._listener.reply(self, message)

    def _welcome(self, hello: HubHello) -> None:
        if hello.version != SERVING_VERSION:
            self._refuse(f"version {hello.version} of the protocol: expected {SERVING_VERSION}")
            return
        self.worker = hello.worker
        self.answer(RouterWelcome(SERVING_VERSION))
        self._listener.loads_changed(self, ReplicaLoads(hello.replicas))

    def _refuse(self, reason: str) -> None:
        _log.warning("refused the hub of %s: %s", self.worker or "a worker", reason)
        self.answer(RouterRefused(reason))
        self.close()
