"""Component hosts in a row, in virtual time: a batch takes what the curve of its component says."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.flowmesh_worker.batch_runner import BatchRunner

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming
from flowmesh_worker.engines.code.component_batches import ComponentBatches
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
)
from flowmesh_worker.ipc.passed_values import StageBytes

Curve = Callable[[int], float]
"""Seconds of a batch by its size."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
BATCH_MAX = SIZES[-1]
TIMEOUT_MS = 10**6


class RanBatch(NamedTuple):
    """A batch that has run."""

    component: str
    began_s: float
    ended_s: float
    members: tuple[str, ...]


@dataclass
class CurveRunner(BatchRunner):
    """Runs batches for as long as the curves say, and keeps a log of them."""

    curves: Mapping[str, Curve]
    log: list[RanBatch] = field(default_factory=list)

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        del within_s, passed
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(self.curves[component](len(calls)))
        members = tuple(call.body.decode() for call in calls)
        self.log.append(RanBatch(component, began_s, loop.time(), members))
        return [CallResult(ResultKind.OK, b"1") for _ in calls]


def new_host(
    runner: CurveRunner,
    on_late: str = "demote",
    *,
    batch_max: int = BATCH_MAX,
    measured: Sequence[int] = SIZES,
) -> ComponentBatches:
    """Returns a host of all components of a runner, which has measured batches of these sizes."""
    code = tuple(LoadedCode(name, "", name, batch_max) for name in runner.curves)
    host = ComponentBatches(code, runner, on_late, lambda: None)
    for name, curve in runner.curves.items():
        if measured:
            component = host._components[name]
            component.profile = BatchProfile.of({b: curve(b) for b in measured})
            component.measured = True
    return host


def new_call(
    component: str, request: str, slo_ms: int = 0, timing: StageTiming = UNTIMED
) -> ComponentCall:
    return ComponentCall(
        call_id=f"{request}.{component}",
        component=component,
        body=request.encode(),
        stored={},
        store_as="",
        wants_body=True,
        budget_ms=TIMEOUT_MS,
        slo_ms=slo_ms,
        timing=timing,
    )


class StagedHosts:
    """A service of stages, one after the other, each in a host of its own.

    Attributes:
        runners: by stage.
        latencies_s: of the requests that have a reply.
    """

    def __init__(
        self,
        curves: Sequence[Curve],
        latency_s: float,
        timings: Sequence[StageTiming],
        on_late: str = "demote",
    ) -> None:
        self._latency_s = latency_s
        self._timings = timings
        self.runners = [CurveRunner({f"c{n}": curve}) for n, curve in enumerate(curves)]
        self.hosts = [new_host(runner, on_late) for runner in self.runners]
        self.latencies_s: dict[str, float] = {}

    async def ask_all(self, arrivals_s: Sequence[float]) -> None:
        """Sends requests at these times, and waits until all have ended."""
        began_s = asyncio.get_running_loop().time()
        asking = (self._ask(f"r{n}", began_s + at_s) for n, at_s in enumerate(arrivals_s))
        await asyncio.gather(*asking, return_exceptions=True)
        for host in self.hosts:
            await host.close()

    async def _ask(self, request: str, at_s: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(at_s - loop.time())
        for n, host in enumerate(self.hosts):
            left_ms = max(1, int((at_s + self._latency_s - loop.time()) * 1000 + 1e-6))
            await host.call(new_call(f"c{n}", request, left_ms, self._timings[n]))
        self.latencies_s[request] = loop.time() - at_s

    def in_time(self) -> int:
        """Returns how many requests had their reply in time."""
        return sum(s <= self._latency_s + 1e-9 for s in self.latencies_s.values())
