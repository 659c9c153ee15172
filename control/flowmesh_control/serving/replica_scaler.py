"""Plans replicas between the least and the most number by what they do.

Called by ``replica_planner`` with each plan. Only replicas that the control plane has sent to a
worker count: what a worker reports of others changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from flowmesh_core.machine.state import State
from flowmesh_core.serving.plan.component_demand import ComponentDemand, FleetView
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

_READY = "ready"


class ReplicaScaler:
    """Measures the load of replicas and plans with it.

    Attributes:
        state: the machine's.
        made: the last plan.
    """

    def __init__(self, state: State) -> None:
        """Has measured nothing yet."""
        self.state = state
        self._meter = LoadMeter()
        self.made = ServePlan(ServingPlan())

    def clear(self) -> None:
        """Forgets the last plan: all services are deleted."""
        self.made = ServePlan(ServingPlan())

    def plan(
        self,
        demands: Sequence[ComponentDemand],
        most: Mapping[tuple[str, str], int],
        fleet: FleetView,
        now_s: float,
    ) -> ServingPlan:
        """Returns where replicas should be.

        Args:
            demands: of the components of all services, each with its least number of replicas.
            most: (service, component) → the most replicas.
            fleet: what there is.
            now_s: the time.
        """
        self._meter.observe(self._readings(demands, fleet), now_s)
        classes = {w.shape.device_class for w in fleet.workers}
        services = [
            PlannedService(
                (
                    PlannedComponent(
                        demand,
                        most[demand.key],
                        self._meter.units_per_s(demand.key, now_s),
                        profiles=self._profiles(demand, classes),
                        memory_cap=_calls_max(demand),
                    ),
                )
            )
            for demand in demands
        ]
        self.made = plan(ServingState(services, fleet, self.made.counts), now_s)
        return self.made.placement

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
                    )

    def _profiles(self, demand: ComponentDemand, classes: Iterable[str]) -> dict[str, BatchProfile]:
        found = {
            c: self._meter.profile(demand.info.signature, c, _calls_max(demand)) for c in classes
        }
        return {c: profile for c, profile in found.items() if profile is not None}


def _calls_max(demand: ComponentDemand) -> int:
    """Returns how many calls a replica runs at once."""
    return demand.calls_max or demand.info.capacity
