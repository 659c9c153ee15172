"""The capacity of an engine that runs calls side by side, by what its worker and routers report."""

from dataclasses import replace

import msgspec
import pytest
from tests.flowmesh_core.machine.world import World
from tests.flowmesh_core.placement.builders import signature

from flowmesh_api.v1.services import ServiceCapacity
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_control.serving.capacity_curves import CapacityCurves
from flowmesh_control.serving.fleet import fleet_view
from flowmesh_control.serving.replica_scaler import ReplicaScaler, ServiceTarget
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica, ServingReplicaState
from flowmesh_core.protocol.router_reports import RouterReport, ServiceReport
from flowmesh_core.serving.plan.component_demand import ComponentDemand
from flowmesh_core.stages.service_graph import LoadedGraph, graph_without_stages

SERVICE = "t/ask"
INFO = replace(
    signature("engine", memory_mib=100, engine="test.noop", work_unit="tokens"), capacity=64
)
OPENING = PrewarmSpec(INFO.signature, "test.noop", 1, 1, memory_mib=100)
REPLICA = ServingReplica(f"{SERVICE}/llm/r1/0", SERVICE, "llm", "r1", OPENING)
DEMAND = ComponentDemand(SERVICE, "llm", "r1", INFO, OPENING, wanted=1)
TARGET = ServiceTarget(0.0, LoadedGraph(graph_without_stages(["llm"])))
RECORD = ServiceRecord("t", "ask", {}, "ask", 0.0)
CALL_S, TOKENS = 0.487, 40


async def capacity(rate: int, sampled: tuple[int, ...]) -> ServiceCapacity:
    """Returns the capacity after a minute with so many calls a second of ``CALL_S`` each.

    Args:
        rate: calls a second.
        sampled: how many run when the worker reports, in turns.
    """
    world = World()
    world.join("w0", device_class="cpu", replicas=())
    world.apply(ServingPlanChanged({"w0": (REPLICA,)}))
    loads = ServiceLoads(lambda: {SERVICE: {REPLICA.replica_id: "w0"}}, lambda: world.now)
    state = world.machine.state
    scaler = ReplicaScaler(state, loads)
    for second in range(1, 62):
        done = rate * second
        shown = ServingReplicaState(
            REPLICA.replica_id,
            "ready",
            calls=sampled[second % len(sampled)],
            units=TOKENS * done,
            signature=INFO.signature,
            memory_mib=100,
            call_s=CALL_S * done,
        )
        world.serves("w0", shown)
        total = ServiceReport(SERVICE, done, done, latency=(done,))
        loads.observe(RouterReport("r1", float(second), (total,)))
        fleet = fleet_view(state, (), world.now)
        scaler.plan([DEMAND], {DEMAND.key: 1}, {SERVICE: TARGET}, fleet, world.now)
        world.now += 1.0
    return await CapacityCurves(state, scaler, loads).of(RECORD, TARGET)


@pytest.mark.parametrize("sampled", [(1,), (0, 1, 2, 0, 1, 1, 2), (0, 0, 1, 2, 2, 0, 1, 3, 0)])
async def test_an_engine_serves_at_least_what_it_was_seen_to_serve(sampled: tuple[int]) -> None:
    found = await capacity(2, sampled)
    (stage,) = found.stages
    assert found.reason == ""
    assert stage.alone_s == pytest.approx(CALL_S, rel=0.1)
    assert found.best_per_s >= 2 * 0.95
    assert stage.at_once >= 1


async def test_no_more_calls_side_by_side_are_promised_than_were_measured() -> None:
    alone, crowded = await capacity(2, (1,)), await capacity(16, (7, 8, 9))
    assert alone.best_per_s == pytest.approx(1 / CALL_S, rel=0.1)
    assert (alone.stages[0].at_once, crowded.stages[0].at_once) == (1, 8)
    assert crowded.best_per_s == pytest.approx(8 / CALL_S, rel=0.1)
    assert msgspec.json.decode(msgspec.json.encode(alone))["stages"][0]["at_once"] == 1
