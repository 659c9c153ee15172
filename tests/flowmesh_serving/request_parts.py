"""Parts of a world of requests: connections without sockets, and hosts without threads."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.flowmesh_worker.batch_runner import BatchRunner

from flowmesh_core.protocol.serving import UseGraph
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_worker.engines.code.component import Component
from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import BatchCall, CallResult
from flowmesh_worker.host.call_server import _HubConnection
from flowmesh_worker.ipc.passed_values import StageBytes

DELAY_S = (0.0002, 0.004)
BATCH_S = (0.002, 0.02)


class SerialCode(BatchRunner):
    """Runs batches one after the other, as the thread of ``TrustedCode`` does, in virtual time."""

    def __init__(self, code: ComponentCode, rng: random.Random) -> None:
        self.code = code
        self._rng = rng
        self._is_busy = False
        self._to_forget: list[str] = []

    @property
    def stored_bytes(self) -> int:
        """Bytes of the results that are kept."""
        return sum(len(msgspec.json.encode(value)) for value in self.code._stored.values())

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]],
    ) -> list[CallResult]:
        """See ``CodeRunner``."""
        del within_s
        self._is_busy = True
        await asyncio.sleep(self._rng.uniform(*BATCH_S))
        results = self.code.run(component, calls, passed)
        self.code.forget(self._to_forget)
        self._to_forget.clear()
        self._is_busy = False
        return results

    def forget(self, keys: tuple[str, ...]) -> None:
        """See ``CodeRunner``; what runs ends first."""
        if self._is_busy:
            self._to_forget += keys
        else:
            self.code.forget(keys)


class Wire:
    """One direction of a connection.

    Attributes:
        is_broken: whether frames are lost.
    """

    unsent_bytes = 0

    def __init__(
        self, rng: random.Random, deliver: Callable[[Any], None], delivered: Callable[[], None]
    ) -> None:
        """Draws delays from ``rng``, and calls ``delivered`` after each frame."""
        self.is_broken = False
        self._rng = rng
        self._deliver = deliver
        self._delivered = delivered
        self._last_s = 0.0

    def send(self, message: Any) -> None:
        loop = asyncio.get_running_loop()
        at_s = loop.time() + self._rng.uniform(*DELAY_S)
        self._last_s = at_s = max(at_s, self._last_s + 1e-6)
        loop.call_at(at_s, self._arrive, message)

    def defer(self, message: Any) -> None:
        self.send(message)

    def close(self) -> None:
        self.is_broken = True

    def _arrive(self, message: Any) -> None:
        if not self.is_broken:
            self._deliver(message)
            self._delivered()


class RouterEnd:
    """The router's end of a link to a hub."""

    peer = incarnation = ""

    def __init__(self, worker: str, wire: Wire) -> None:
        self.worker = worker
        self.wire = wire
        self._graphs: set[str] = set()

    def use_graph(self, graph: LoadedGraph) -> None:
        if graph.digest not in self._graphs:
            self._graphs.add(graph.digest)
            self.wire.send(UseGraph(graph.graph))

    def answer(self, message: Any) -> None:
        self.wire.send(message)

    def defer(self, message: Any) -> None:
        self.wire.defer(message)


class HubEnd:
    """The hub's end of a link to a router; also the group of that router."""

    is_congested = False

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.links = (self,)

    def send(self, message: Any) -> None:
        self.wire.send(message)

    def defer(self, message: Any) -> None:
        self.wire.defer(message)

    def close(self) -> None:
        self.wire.close()


@dataclass
class Host:
    """A component host.

    Attributes:
        connections: of the present hub and of earlier ones.
    """

    engine: Component
    runner: SerialCode
    connections: list[_HubConnection] = field(default_factory=list)
