"""Whether a request to a service with stages is admitted, by its replicas' measured profiles."""

from collections.abc import Callable, Mapping

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.route.admission import OnLate, ServiceLoad, Verdict, admit
from flowmesh_core.serving.route.predicted_latency import MeasuredReplica, predicted_s
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.replicas import ReplicaTable, RoutedReplica
from flowmesh_serving.errors import admission_refused, no_replica
from flowmesh_serving.service_table import Caller

InFlight = Callable[[str], Mapping[str, int]]


class ServiceAdmission:
    """Admits requests by what hubs have reported and what this router has sent."""

    def __init__(self, replicas: ReplicaTable, in_flight: InFlight) -> None:
        """Reads the replicas, and the requests in flight of a service by namespace."""
        self._replicas = replicas
        self._in_flight = in_flight

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
        replicas = self._replicas.of(service.service).values()
        places: dict[str, int] = {stage.stage.component: 0 for stage in graph.stages.values()}
        measured: dict[str, list[MeasuredReplica]] = {}
        for replica in replicas:
            component = replica.load.component
            if component in places:
                places[component] += replica.candidate.calls_max
            if service.slo_s and replica.load.sizes:
                measured.setdefault(component, []).append(_measured(replica))
        if missing := next((name for name, count in places.items() if not count), ""):
            raise no_replica(f"{service.service}, component {missing}")
        load = ServiceLoad(
            max_in_flight=service.max_in_flight,
            in_flight=self._in_flight(service.service),
            places=min(places.values()),
            predicted_s=predicted_s(graph, measured) if measured else 0.0,
            on_late=OnLate(service.on_late),
        )
        verdict = admit(load, caller.namespace, budget_s)
        if verdict.verdict is Verdict.NO_REPLICA:
            raise no_replica(service.service)
        if not verdict.accepted:
            raise admission_refused(verdict.verdict.value)


def _measured(replica: RoutedReplica) -> MeasuredReplica:
    load = replica.load
    return MeasuredReplica(
        BatchProfile(load.sizes, load.seconds), max(1, load.cap), replica.candidate.calls
    )
