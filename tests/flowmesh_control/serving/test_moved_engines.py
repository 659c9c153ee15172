"""A busy engine moves to a faster device, by what its worker reports; no other report moves it."""

from dataclasses import replace

import msgspec
from tests.flowmesh_core.machine.world import World
from tests.flowmesh_core.placement.builders import digest, signature

from flowmesh_control.serving.fleet import fleet_view
from flowmesh_control.serving.replica_scaler import ReplicaScaler, ServiceTarget
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica, ServingReplicaState
from flowmesh_core.serving.plan.component_demand import ComponentDemand
from flowmesh_core.serving.plan.replica_moves import MOVE_EVERY_S
from flowmesh_core.serving.plan.replica_placement import ServingPlan
from flowmesh_core.stages.service_graph import LoadedGraph, graph_without_stages

INFO = replace(
    signature("engine", memory_mib=100, engine="test.noop", work_unit="tokens", capacity=1),
    components=((digest("model"), 538_000_000),),
)
OPENING = PrewarmSpec(INFO.signature, "test.noop", 1, 1, memory_mib=100)
DEMAND = ComponentDemand("t/ask", "llm", "r1", INFO, OPENING, wanted=1)
TARGET = ServiceTarget(0.0, LoadedGraph(graph_without_stages(["llm"])))
FIRST = "t/ask/llm/r1/0"


class Scene:
    """An engine on a CPU that is always busy, and a worker with a GPU."""

    def __init__(self) -> None:
        self.world = World()
        self.world.join("w0", device_class="cpu", replicas=())
        self.world.join(
            "w1", device_class="nvidia-l4", price_nanousd_per_hour=9_000_000_000_000, replicas=()
        )
        self.scaler = ReplicaScaler(
            self.world.machine.state, ServiceLoads(dict, lambda: self.world.now)
        )
        self.units = 0

    def second(self, calls: int = 1) -> ServingPlan:
        """Plans; then the workers do what the plan says, and report it."""
        world, state = self.world, self.world.machine.state
        fleet = fleet_view(state, (), world.now)
        made = self.scaler.plan([DEMAND], {DEMAND.key: 1}, {"t/ask": TARGET}, fleet, world.now)
        world.apply(ServingPlanChanged(made.workers))
        world.now += 1.0
        self.units += 20 * calls
        for name in ("w0", "w1"):
            replicas = made.workers.get(name, ())
            world.serves(name, *(self.state_of(r, calls) for r in replicas))
        return made

    def state_of(self, one: ServingReplica, calls: int) -> ServingReplicaState:
        found = ServingReplicaState(one.replica_id, "ready", calls=calls, units=self.units)
        return msgspec.structs.replace(found, signature=INFO.signature, memory_mib=100)


def test_a_busy_engine_moves_to_a_device_that_should_be_faster() -> None:
    scene = Scene()
    places = [set(scene.second().workers) for _ in range(round(2 * MOVE_EVERY_S))]
    assert places[0] == {"w0"}
    began = places.index({"w0", "w1"})
    assert began >= MOVE_EVERY_S
    assert places[began + 1] == {"w1"}, "it was ready a second later"
    assert places[-1] == {"w1"}
    idle = Scene()
    places = [set(idle.second(calls=second < 20).workers) for second in range(150)]
    assert places[100:] == 50 * [{"w0"}], "it is measured, and has nothing to do"


def test_a_worker_is_not_believed_about_replicas_that_it_was_not_given() -> None:
    scene = Scene()
    scene.second()
    foreign = ServingReplicaState("t/ask/llm/r1/7", "ready", signature=INFO.signature)
    scene.world.serves("w1", foreign, msgspec.structs.replace(foreign, replica_id=FIRST))
    fleet = fleet_view(scene.world.machine.state, (), scene.world.now)
    assert (fleet.ready, fleet.failed) == ({FIRST}, set())
    failed = msgspec.structs.replace(foreign, replica_id=FIRST, state="failed")
    scene.world.serves("w1", failed)
    fleet = fleet_view(scene.world.machine.state, (), scene.world.now)
    assert (fleet.ready, fleet.failed) == ({FIRST}, set())
