"""Services of a simulation: the shipped planner decides which worker holds their replicas."""

from typing import TYPE_CHECKING

from flowmesh_control.serving.fleet import fleet_view
from flowmesh_control.serving.replica_scaler import ReplicaScaler, ServiceTarget
from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_core.fleet.snapshot import Requirement, SignatureInfo
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.machine.serving import plan_is_current
from flowmesh_core.protocol.messages import PrewarmSpec
from flowmesh_core.serving.plan.component_demand import ComponentDemand
from flowmesh_core.stages.service_graph import LoadedGraph, graph_without_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowmesh_sim.control.fabric import SimulatedFabric
    from flowmesh_sim.scenario import SimulatedService

PLAN_EVERY_S = 1.0
ENGINE = "test.noop"
COMPONENT = "llm"
_TARGET = ServiceTarget(0.0, LoadedGraph(graph_without_stages([COMPONENT])))


class SimServices:
    """Plans the replicas of services once a second.

    Attributes:
        counts: how many replicas of all services were wanted, whenever that changed.
    """

    def __init__(self, fabric: "SimulatedFabric", specs: "Sequence[SimulatedService]") -> None:
        self._fabric = fabric
        self._specs = specs
        self._scaler: ReplicaScaler | None = None
        self.counts: list[int] = []
        if specs:
            fabric.engine.after(PLAN_EVERY_S, self._plan)

    def _plan(self) -> None:
        engine, control = self._fabric.engine, self._fabric.control
        engine.after(PLAN_EVERY_S, self._plan)
        if control is None:
            return
        now_s, state = engine.now_s, control.machine.state
        specs = [s for s in self._specs if s.at_s <= now_s < s.until_s]
        if self._scaler is None or self._scaler.state is not state:
            loads = ServiceLoads(dict, lambda: engine.now_s)  # simulated routers report nothing
            self._scaler = ReplicaScaler(state, loads)  # a new leader has measured nothing
        most = {("sim/" + s.name, COMPONENT): max(s.replicas, s.most) for s in specs}
        fleet = fleet_view(state, (), control.now_s())
        demands = [self._demand(s) for s in specs]
        targets = dict.fromkeys((d.service for d in demands), _TARGET)
        workers = self._scaler.plan(demands, most, targets, fleet, control.now_s()).workers
        count = sum(c.wanted for c in self._scaler.made.counts.values())
        if count and self.counts[-1:] != [count]:
            self.counts.append(count)
        if not plan_is_current(state, workers, ()):
            control.post(ServingPlanChanged(workers))

    def _demand(self, spec: "SimulatedService") -> ComponentDemand:
        contract = next(c for c in self._fabric.catalog if c.name == ENGINE)
        versions = contract.version, contract.implementation
        signature = digest_bytes(f"service {spec.name}".encode())
        requirement = Requirement(ENGINE, *versions, memory_mib=spec.memory_mib)
        return ComponentDemand(
            service=f"sim/{spec.name}",
            component=COMPONENT,
            release="r1",
            info=SignatureInfo(signature, requirement),
            opening=PrewarmSpec(signature, ENGINE, *versions, memory_mib=spec.memory_mib),
            wanted=spec.replicas,
            calls_max=0 if spec.calls is None else spec.calls.calls_max,
        )
