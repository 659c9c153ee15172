"""Plans replicas between the least and the most number by what they do.

Called by ``replica_planner`` with each plan. Only replicas that the control plane has sent to a
worker count: what a worker or a router reports of others changes nothing.

Engines that generate tokens are measured by what their workers report: the work of their calls, and
steps of it. All other components are measured by what routers report: requests, and the time of
batches or calls.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from flowmesh_control.serving.service_loads import ServiceLoads
from flowmesh_core.machine.state import State
from flowmesh_core.serving.plan.component_demand import ComponentDemand, FleetView
from flowmesh_core.serving.plan.device_estimates import estimated_profiles
from flowmesh_core.serving.plan.load_meter import LoadMeter, ReplicaReading
from flowmesh_core.serving.plan.replica_placement import ServingPlan
from flowmesh_core.serving.plan.serving_plan import (
    PlannedComponent,
    PlannedService,
    ServePlan,
    ServingState,
    plan,
)
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.stages.expected_arrivals import ExpectedArrivals
from flowmesh_core.stages.service_graph import LoadedGraph

_READY, _TOKENS = "ready", "tokens"


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """What a service wants of its replies, and how many it expects to send.

    Attributes:
        latency_s: when one is late; 0 for never, and where ``scale`` says it.
        graph: the stages of a request.
        arrivals: the requests that it expects; None for none.
        scale: how many times a request alone the latency target is; 0 for none such.
    """

    latency_s: float
    graph: LoadedGraph
    arrivals: ExpectedArrivals | None = None
    scale: float = 0.0


class ReplicaScaler:
    """Measures the load of replicas and plans with it.

    Attributes:
        state: the machine's.
        made: the last plan.
        components: (service, component) → what it was made from.
    """

    def __init__(self, state: State, loads: ServiceLoads) -> None:
        """Has measured nothing yet.

        Args:
            state: the machine's.
            loads: what routers report.
        """
        self.state = state
        self._loads = loads
        self._meter = LoadMeter()
        self.made = ServePlan(ServingPlan())
        self.components: dict[tuple[str, str], PlannedComponent] = {}

    def clear(self) -> None:
        """Forgets the last plan: all services are deleted."""
        self.made = ServePlan(ServingPlan())
        self.components = {}

    def latency_s(self, service: str, target: ServiceTarget) -> float:
        """Returns when a reply is late; 0 for never, and before the last plan could know it."""
        return target.latency_s or target.scale * self.made.unloaded_s.get(service, 0.0)

    def plan(
        self,
        demands: Sequence[ComponentDemand],
        most: Mapping[tuple[str, str], int],
        targets: Mapping[str, ServiceTarget],
        fleet: FleetView,
        now_s: float,
    ) -> ServingPlan:
        """Returns where replicas should be.

        Args:
            demands: of the components of all services, each with its least number of replicas;
                those of a service side by side.
            most: (service, component) → the most replicas.
            targets: by service.
            fleet: what there is.
            now_s: the time.
        """
        self._meter.observe(self._readings(demands, fleet), now_s)
        replicas = self._replicas(fleet)
        classes = {w.shape.device_class for w in fleet.workers}
        services = []
        for service, found in groupby(demands, key=lambda demand: demand.service):
            target = targets[service]
            components = tuple(
                self._batched(d, target.graph, most[d.key], replicas.get(d.key, {}))
                or self._engine(d, target.graph, most[d.key], (classes, now_s))
                for d in found
            )
            services.append(
                PlannedService(
                    components,
                    latency_s=target.latency_s,
                    expected=target.arrivals,
                    requests=self._loads.replies(service),
                    graph=target.graph,
                    are_replies_in_time=self._loads.seen(service).are_in_time,
                    scale=target.scale,
                )
            )
        self.components = {c.demand.key: c for s in services for c in s.components}
        before = self.made
        state = ServingState(
            services,
            fleet,
            before.counts,
            before.placement.moves,
            before.timings,
            before.unloaded_s,
        )
        self.made = plan(state, now_s)
        return self.made.placement

    def _batched(
        self, demand: ComponentDemand, graph: LoadedGraph, most: int, replicas: Mapping[str, str]
    ) -> PlannedComponent | None:
        """Returns what is known of a component by its batches or calls; None where nothing is.

        Args:
            demand: what a replica is.
            graph: the stages of its service.
            most: the most replicas.
            replicas: by id, the class of their device.
        """
        profiles = self._loads.profiles(replicas)
        if not profiles:
            return None
        caps = [known.cap for i in replicas if (known := self._loads.replica(i)) is not None]
        visits = _visits(graph, demand.component)
        calls_per_s = self._loads.seen(demand.service).taken_per_s * visits
        return PlannedComponent(demand, most, calls_per_s, visits, profiles, memory_cap=max(caps))

    def _engine(
        self,
        demand: ComponentDemand,
        graph: LoadedGraph,
        most: int,
        seen: tuple[Collection[str], float],
    ) -> PlannedComponent:
        """Returns what is known of an engine, in the unit of its work.

        Args:
            demand: what a replica is.
            graph: the stages of its service.
            most: the most replicas.
            seen: the classes of all devices, and the time.
        """
        classes, now_s = seen
        visits = _visits(graph, demand.component)
        calls_per_s = self._loads.seen(demand.service).taken_per_s * visits
        units_per_s = self._meter.units_per_s(demand.key, now_s)
        profiles = self._profiles(demand, classes)
        estimates: dict[str, BatchProfile] = {}
        if demand.info.work_unit == _TOKENS:
            size_bytes = sum(size for _, size in demand.info.components)
            estimates = estimated_profiles(profiles, classes, size_bytes)
        return PlannedComponent(
            demand,
            most,
            units_per_s,
            visits,
            profiles,
            memory_cap=_calls_max(demand),
            steps_per_call=(units_per_s or 0.0) / calls_per_s if calls_per_s else 0.0,
            estimates=estimates,
            calls_at_once={
                c: self._meter.calls_at_once(demand.info.signature, c) for c in profiles
            },
        )

    def _replicas(self, fleet: FleetView) -> dict[tuple[str, str], dict[str, str]]:
        """Returns the class of device of each replica, by its component and its id."""
        classes = {w.name: w.shape.device_class for w in fleet.workers}
        found: dict[tuple[str, str], dict[str, str]] = {}
        for name, worker in self.state.workers.items():
            if name in classes:
                for replica in worker.replicas or ():
                    key = replica.service, replica.component
                    found.setdefault(key, {})[replica.replica_id] = classes[name]
        return found

    def _readings(
        self, demands: Iterable[ComponentDemand], fleet: FleetView
    ) -> Iterator[ReplicaReading]:
        caps = {demand.key: _calls_max(demand) for demand in demands}
        classes = {w.name: w.shape.device_class for w in fleet.workers}
        for name, worker in self.state.workers.items():
            for replica in worker.replicas or ():
                state = worker.replica_states.get(replica.replica_id)
                key = replica.service, replica.component
                if state is not None and state.state == _READY and key in caps and name in classes:
                    yield ReplicaReading(
                        replica.replica_id,
                        key,
                        replica.opening.signature,
                        classes[name],
                        state.calls,
                        state.units,
                        caps[key],
                        state.call_s,
                    )

    def _profiles(self, demand: ComponentDemand, classes: Iterable[str]) -> dict[str, BatchProfile]:
        found = {
            c: self._meter.profile(demand.info.signature, c, _calls_max(demand)) for c in classes
        }
        return {c: profile for c, profile in found.items() if profile is not None}


def _visits(graph: LoadedGraph, component: str) -> float:
    """Returns how often a request calls a component."""
    return float(sum(s.stage.component == component for s in graph.stages.values()))


def _calls_max(demand: ComponentDemand) -> int:
    """Returns how many calls a replica runs at once."""
    return demand.calls_max or demand.info.capacity
