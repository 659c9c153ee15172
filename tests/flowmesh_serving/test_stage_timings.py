"""What a plan says of a stage reaches the calls of its component host, by the hub, in one world."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.flowmesh_core.worker_agent.worker import replica
from tests.flowmesh_serving.request_world import RequestWorld, Worker
from tests.virtual_time import in_virtual_time

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_core.stages.stage_timing import UNTIMED, StageTiming
from flowmesh_worker.engines.code.component import Component
from flowmesh_worker.ipc.hub_frames import AdmitReplica
from flowmesh_worker.serving.hub_process import HubProcess

STAGES = {"upper": "a", "double": "b", "join": "both", "size": "last"}
"""By component, the stage that calls it."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[ComponentCall]:
    """The calls that component hosts get, each of a chain by itself."""
    found: list[ComponentCall] = []
    begin = Component.call_component

    def recorded(engine: Component, call: ComponentCall, *more: object) -> object:
        found.extend((call, *call.then))
        return begin(engine, call, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Component, "call_component", recorded)
    return found


async def admit(worker: Worker, timings: dict[str, StageTiming]) -> None:
    """The agent admits the replicas of a worker again, with what a plan says of each stage."""
    for known in list(worker.hub._replicas.values()):
        stages = {s: t for s, t in timings.items() if STAGES.get(known.admitted.component) == s}
        await worker.hub.admit(msgspec.structs.replace(known.admitted, timings=stages))


def by_stage(calls: list[ComponentCall]) -> dict[str, StageTiming]:
    found = {call.call_id.rpartition(".")[2]: call.timing for call in calls}
    calls.clear()
    return found


@in_virtual_time
async def test_calls_have_the_timings_of_the_newest_plan(calls: list[ComponentCall]) -> None:
    world = RequestWorld(1)
    await asyncio.sleep(0.1)
    await world.ask(0)
    assert by_stage(calls) == dict.fromkeys(STAGES.values(), UNTIMED)
    for plan in (1, 2):
        timings = {s: StageTiming(0.1 * plan, 1, 0.01 * n) for n, s in enumerate(STAGES.values())}
        for worker in world.workers.values():
            await admit(worker, timings)
        await world.ask(plan)
        assert by_stage(calls) == timings


@in_virtual_time
async def test_a_plan_with_equal_timings_changes_nothing_at_the_hub() -> None:
    world = RequestWorld(1)
    await asyncio.sleep(0.1)
    hub = world.workers["w1"].hub
    await admit(world.workers["w1"], {"a": StageTiming(0.1)})
    before = hub.generation
    await admit(world.workers["w1"], {"a": StageTiming(0.1)})
    assert hub.generation == before


def test_the_agent_passes_them_to_its_hub() -> None:
    hub, timings = HubProcess("w1", print), {"answer": StageTiming(0.5, 2, 0.25)}
    hub.admit(1, Path("calls"), msgspec.structs.replace(replica("a"), timings=timings))
    (sent,) = hub._unsent
    assert isinstance(sent, AdmitReplica)
    assert sent.timings == timings
