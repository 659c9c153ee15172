"""Attacker: W, a worker of a pool of trust 1.
Action: reports that replicas which it was not given are full of calls and do much work.
Must not happen: the service gets more replicas, and pays for them, or its replica moves.
"""

import msgspec
from tests.flowmesh_core.machine.world import World
from tests.flowmesh_core.placement.builders import signature

from flowmesh_control.serving.fleet import fleet_view
from flowmesh_control.serving.replica_scaler import ReplicaScaler, ServiceTarget
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica, ServingReplicaState
from flowmesh_core.serving.plan.component_demand import ComponentDemand
from flowmesh_core.stages.service_graph import LoadedGraph, graph_without_stages

INFO = signature("model", memory_mib=100, engine="test.noop", capacity=4)
OPENING = PrewarmSpec(INFO.signature, "test.noop", 1, 1, memory_mib=100)
DEMAND = ComponentDemand("team-a/ask", "llm", "r1", INFO, OPENING, wanted=1)
GIVEN = ServingReplica("team-a/ask/llm/r1/0", "team-a/ask", "llm", "r1", OPENING)
TARGETS = {DEMAND.service: ServiceTarget(0.0, LoadedGraph(graph_without_stages(["llm"])))}


class Scene:
    """A service with a replica on one of three workers, and its plans."""

    def __init__(self) -> None:
        self.world = World()
        self.world.join("attacker", "honest", "third", replicas=())
        self.world.apply(ServingPlanChanged({"honest": (GIVEN,)}))
        loads = ServiceLoads(dict, lambda: self.world.now)
        self.scaler = ReplicaScaler(self.world.machine.state, loads)
        self.plan()

    def plan(self) -> dict[str, list[str]]:
        """Plans, and returns where replicas are."""
        world, most = self.world, {DEMAND.key: 3}
        fleet = fleet_view(world.machine.state, (), world.now)
        placed = self.scaler.plan([DEMAND], most, TARGETS, fleet, world.now)
        return {w: [r.replica_id for r in found] for w, found in placed.workers.items()}

    def report(self, worker: str) -> dict[str, list[str]]:
        """A worker reports for two minutes that the replica is full; returns the last plan."""
        placed: dict[str, list[str]] = {}
        for second in range(120):
            state = ServingReplicaState(GIVEN.replica_id, "ready", calls=4, units=100 * second)
            load = {"signature": INFO.signature, "memory_mib": 100}
            self.world.serves(worker, msgspec.structs.replace(state, **load))
            self.world.beat()
            self.world.tick(1.0)
            placed = self.plan()
        return placed

    @property
    def wanted(self) -> int:
        return self.scaler.made.counts[DEMAND.key].wanted


def test_only_the_worker_that_was_given_a_replica_reports_its_demand() -> None:
    attacked, honest = Scene(), Scene()
    attacked.report("attacker")
    assert attacked.wanted == 1
    honest.report("honest")
    assert honest.wanted == 2


def test_a_replica_stays_with_the_worker_that_was_given_it() -> None:
    assert Scene().report("attacker") == {"honest": [GIVEN.replica_id]}
