"""Whether a request to a service with stages is admitted, by its replicas' measured profiles."""

from collections import Counter
from collections.abc import Callable, Mapping

from flowmesh_core.protocol.router_services import ServiceEntry
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.route.admission import (
    OnLate,
    ServiceLoad,
    Verdict,
    admit,
    within_any_share,
)
from flowmesh_core.serving.route.predicted_latency import MeasuredReplica, predicted_s
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.replicas import ReplicaTable, RoutedReplica
from flowmesh_serving.errors import admission_refused, no_replica, no_whole_group
from flowmesh_serving.service_table import Caller

InFlight = Callable[[str], Mapping[str, int]]


class ServiceAdmission:
    """Admits requests by what hubs have reported and what this router has sent."""

    def __init__(self, replicas: ReplicaTable, in_flight: InFlight) -> None:
        """Reads the replicas, and the requests in flight of a service by namespace."""
        self._replicas = replicas
        self._in_flight = in_flight
        self._places: dict[LoadedGraph, int] = {}
        self._changes = -1

    def check(self, caller: Caller, graph: LoadedGraph, budget_s: float) -> None:
        """Refuses a request that would take too long, or another tenant's places.

        Args:
            caller: who sends it.
            graph: of the service.
            budget_s: until its reply is late.

        Raises:
            OpenAiError: it is refused.
        """
        service = caller.service
        places = self._places_of(service.service, graph)
        in_flight = self._in_flight(service.service)
        total = sum(in_flight.values())
        if not service.slo_s and within_any_share(total, service.max_in_flight, places):
            return
        load = ServiceLoad(
            max_in_flight=service.max_in_flight,
            in_flight=in_flight,
            places=places,
            # With none before it a request is taken: measured times that are too long, as after
            # one slow batch, would have all refused for ever, and nothing would be measured.
            predicted_s=self._predicted_s(service, graph) if total else 0.0,
            on_late=OnLate(service.on_late),
        )
        verdict = admit(load, caller.namespace, budget_s)
        if verdict.verdict is Verdict.NO_REPLICA:
            raise no_replica(service.service)
        if not verdict.accepted:
            raise admission_refused(verdict.verdict.value)

    def _places_of(self, service: str, graph: LoadedGraph) -> int:
        """Returns how many calls the replicas of its smallest component take at once.

        Those of an affinity group count where a worker has all of them: no request uses others.

        Raises:
            OpenAiError: a component has no replica, or a group is on no worker as a whole.
        """
        if self._changes != self._replicas.changes:
            self._changes = self._replicas.changes
            self._places.clear()
        known = self._places.get(graph)
        if known is not None:
            return known
        places: dict[str, Counter[str]] = {
            s.stage.component: Counter() for s in graph.stages.values()
        }
        for replica in self._replicas.of(service).values():
            if replica.load.component in places:
                places[replica.load.component][replica.link.worker] += replica.candidate.calls_max
        if missing := next((name for name, workers in places.items() if not workers), ""):
            raise no_replica(f"{service}, component {missing}")
        for group, members in graph.groups.items():
            whole = set.intersection(*(set(places[name]) for name in members))
            if not whole:
                raise no_whole_group(service, group, members)
            for name in members:
                places[name] = Counter({worker: places[name][worker] for worker in whole})
        found = self._places[graph] = min(workers.total() for workers in places.values())
        return found

    def _predicted_s(self, service: ServiceEntry, graph: LoadedGraph) -> float:
        """Returns the time to a reply; 0 for a service without a target or a measurement."""
        measured: dict[str, list[MeasuredReplica]] = {}
        components = {stage.stage.component for stage in graph.stages.values()}
        if service.slo_s:
            for replica in self._replicas.of(service.service).values():
                if replica.load.sizes and replica.load.component in components:
                    measured.setdefault(replica.load.component, []).append(_measured(replica))
        return predicted_s(graph, measured) if measured else 0.0


def _measured(replica: RoutedReplica) -> MeasuredReplica:
    load = replica.load
    return MeasuredReplica(
        BatchProfile(load.sizes, load.seconds), max(1, load.cap), replica.candidate.calls
    )
