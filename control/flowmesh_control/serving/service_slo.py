"""Whether services meet their SLOs, as their status shows it.

Called by ``replica_planner`` with the last plan and what routers have reported.
"""

from collections.abc import Collection

from flowmesh_api.v1.services import ServiceCondition, ServiceRequests
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_control.serving.replica_scaler import ServiceTarget
from flowmesh_core.serving.plan.request_meter import SeenRequests
from flowmesh_core.serving.plan.serving_plan import ServePlan
from flowmesh_core.serving.plan.slo_verdict import SloTargets, slo_verdict
from flowmesh_core.stages.service_graph import (
    LoadedGraph,
    ServiceGraph,
    graph_without_stages,
)

MEETS_SLO = "MeetsSlo"
_STATUS = {True: "True", False: "False", None: "Unknown"}


class ServiceTargets:
    """The latency targets of services, with their stages parsed once for each release."""

    def __init__(self) -> None:
        self._graphs: dict[str, tuple[ServiceGraph, LoadedGraph]] = {}

    def keep(self, services: Collection[str]) -> None:
        """Forgets all services but these."""
        for gone in self._graphs.keys() - services:
            del self._graphs[gone]

    def of(self, service: ServiceRecord) -> ServiceTarget:
        """Returns the target of a service with a release."""
        assert service.release is not None, "only services with a release have targets"
        entry, components = service.entry, service.release.components
        graph = entry.graph or graph_without_stages(c.plan.name for c in components)
        known = self._graphs.get(service.id)
        if known is None or known[0] != graph:
            known = self._graphs[service.id] = (graph, LoadedGraph(graph))
        return ServiceTarget(entry.slo_s, known[1], service.release.arrivals)


def condition_of(
    service: ServiceRecord, target: ServiceTarget, made: ServePlan, seen: SeenRequests
) -> ServiceCondition:
    """Returns the condition of a service with targets.

    Args:
        service: the service, with a release.
        target: of it.
        made: the last plan.
        seen: its requests.
    """
    problem = made.problems.get(service.id, "")
    verdict = slo_verdict(
        slo_targets(service),
        service.entry.miss_rate,
        seen,
        problem,
        _slowest(service, target.graph, made),
    )
    return ServiceCondition(
        MEETS_SLO, _STATUS[verdict.holds], verdict.reason.value, verdict.message
    )


def slo_targets(service: ServiceRecord) -> SloTargets:
    """Returns the targets of a service."""
    return SloTargets(service.entry.slo_s, service.entry.ttft_s, service.entry.tpot_s)


def requests_of(service: ServiceRecord, seen: SeenRequests) -> ServiceRequests:
    """Returns what the status of a service has of its requests."""
    return ServiceRequests(
        rate_per_s=round(seen.rate_per_s, 3),
        came=seen.came,
        ended=seen.ended,
        missed=seen.missed,
        refused=seen.refused,
        p50_s=round(seen.p50_s, 4),
        p99_s=round(seen.p99_s, 4),
        latency_s=service.entry.slo_s,
        miss_rate=service.entry.miss_rate if slo_targets(service) else 0.0,
        ttft_s=service.entry.ttft_s,
        streamed=seen.streamed,
        missed_ttft=seen.missed_ttft,
        tpot_s=service.entry.tpot_s,
        token_timed=seen.token_timed,
        missed_tpot=seen.missed_tpot,
    )


def _slowest(service: ServiceRecord, graph: LoadedGraph, made: ServePlan) -> str:
    """Returns which stage takes the most alone, and how long; empty where none is measured."""
    found = {
        name: seconds
        for name, stage in graph.stages.items()
        if (seconds := made.alone_s.get((service.id, stage.stage.component)))
    }
    if not found:
        return ""
    name = max(found, key=lambda n: found[n])
    return f"stage {name} takes the most, {found[name] * 1e3:.0f} ms alone"
