"""Whether services meet their SLOs, as their status shows it.

Called by ``replica_planner`` with the last plan and what routers have reported.
"""

from collections.abc import Collection

from flowmesh_api.v1.services import ServiceCondition, ServiceRequests
from flowmesh_control.records.service_records import ServiceRecord
from flowmesh_control.serving.replica_scaler import ServiceTarget
from flowmesh_core.serving.plan.request_meter import SeenRequests
from flowmesh_core.serving.plan.serving_plan import ServePlan
from flowmesh_core.serving.plan.slo_verdict import (
    ENOUGH,
    SloReason,
    SloTargets,
    slo_verdict,
)
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
        return ServiceTarget(entry.slo_s, known[1], service.release.arrivals, entry.slo_scale)


def condition_of(
    service: ServiceRecord,
    graph: LoadedGraph,
    requests: ServiceRequests,
    made: ServePlan,
    seen: SeenRequests,
) -> ServiceCondition:
    """Returns the condition of a service with targets.

    Args:
        service: the service, with a release.
        graph: its stages.
        requests: as its status has them, with its targets.
        made: the last plan.
        seen: its requests.
    """
    scale, latency_s = requests.scale, requests.latency_s
    if scale and not latency_s:
        unknown = SloReason.NOT_MEASURED.value
        return ServiceCondition(
            MEETS_SLO, _STATUS[None], unknown, _not_measured(service, graph, made)
        )
    problem = made.problems.get(service.id, "")
    verdict = slo_verdict(
        SloTargets(latency_s, requests.ttft_s, requests.tpot_s),
        service.entry.miss_rate,
        seen,
        problem,
        _slowest(service, graph, made),
    )
    message = verdict.message
    if scale:
        target = f"the target is {latency_s * 1e3:.0f} ms, {scale:g} times a request alone"
        message = "; ".join(filter(None, (message, target)))
    return ServiceCondition(MEETS_SLO, _STATUS[verdict.holds], verdict.reason.value, message)


def has_target(service: ServiceRecord) -> bool:
    """Returns whether a service has any target, of which one may not be measured yet."""
    entry = service.entry
    return bool(entry.slo_s or entry.slo_scale or entry.ttft_s or entry.tpot_s)


def requests_of(service: ServiceRecord, seen: SeenRequests, latency_s: float) -> ServiceRequests:
    """Returns what the status of a service has of its requests.

    Args:
        service: the service.
        seen: its requests.
        latency_s: when a reply is late; 0 for never, and before it is known.
    """
    return ServiceRequests(
        rate_per_s=round(seen.rate_per_s, 3),
        came=seen.came,
        ended=seen.ended,
        missed=seen.missed,
        refused=seen.refused,
        p50_s=round(seen.p50_s, 4),
        p99_s=round(seen.p99_s, 4),
        latency_s=latency_s,
        miss_rate=service.entry.miss_rate if has_target(service) else 0.0,
        ttft_s=service.entry.ttft_s,
        streamed=seen.streamed,
        missed_ttft=seen.missed_ttft,
        tpot_s=service.entry.tpot_s,
        token_timed=seen.token_timed,
        missed_tpot=seen.missed_tpot,
        scale=service.entry.slo_scale,
        p95_s=round(seen.p95_s, 4),
        in_flight=seen.in_flight,
    )


def _not_measured(service: ServiceRecord, graph: LoadedGraph, made: ServePlan) -> str:
    """Returns why a target that is a multiple of a request alone is not known."""
    unknown = [
        name
        for name, stage in graph.stages.items()
        if not made.alone_s.get((service.id, stage.stage.component))
    ]
    waits = f"stage {unknown[0]} is not measured yet" if unknown else f"it needs {ENOUGH} replies"
    return f"no target yet: it is {service.entry.slo_scale:g} times a request alone, and {waits}"


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
