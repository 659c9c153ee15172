"""The status of a ``FlowMeshService`` object, from what the control plane knows of the service."""

from typing import Any

from flowmesh_api.v1.services import ServiceStatus
from flowmesh_core.serving.plan.slo_verdict import SloReason
from flowmesh_core.spec.service_status import MOST_REPLICA_REASON_CHARS
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.services.conditions import ServiceCondition, ServiceReason

MOST_CHARS = 16_384
"""Limit of a message; the API server accepts 32,768 bytes."""
REFUSED = "Refused"
_HOLDS = {"True": True, "False": False, "Unknown": None}

Json = dict[str, Any]


def status_of(
    found: ServiceStatus | None, problem: ConditionUpdate | None, url: str, context: StatusContext
) -> Json:
    """Returns the status of an object.

    Args:
        found: the service; None where the control plane has none.
        problem: why the present spec is not accepted; None where it is.
        url: the base URL of the routers for clients.
        context: the object that the status is for.
    """
    accepted = problem or ConditionUpdate(
        ServiceCondition.ACCEPTED, holds=True, reason=ServiceReason.VALID
    )
    ready = _ready(found, accepted)
    conditions = [accepted, ready, *_meets_slo(found)]
    status: Json = {
        "phase": REFUSED if found is None else found.phase,
        "message": accepted.message[:MOST_CHARS] or ready.message[:MOST_CHARS],
        "observedGeneration": context.generation,
        "epoch": context.epoch,
        "conditions": context.conditions(conditions, most_chars=MOST_CHARS),
    }
    return status if found is None else status | _served(found, url)


def _served(found: ServiceStatus, url: str) -> Json:
    replicas = [
        {
            "component": r.component,
            "ready": r.ready,
            "wanted": r.wanted,
            "reason": r.reason[:MOST_REPLICA_REASON_CHARS],
        }
        for r in found.replicas
    ]
    counts = [sum(r.ready for r in found.replicas), sum(r.wanted for r in found.replicas)]
    return {
        "model": found.model,
        "endpoint": url,
        "release": found.release,
        "ready": "/".join(map(str, counts)),
        "replicas": replicas,
        "capacity": f"{found.best_per_s:g}/s" if found.best_per_s else "",
    }


def _ready(found: ServiceStatus | None, accepted: ConditionUpdate) -> ConditionUpdate:
    """Returns the condition Ready; a service that was never accepted has that of Accepted."""
    if found is None:
        return ConditionUpdate(
            ServiceCondition.READY, holds=False, reason=accepted.reason, message=accepted.message
        )
    ready = next(c for c in found.conditions if c.type == ServiceCondition.READY)
    return ConditionUpdate(
        ServiceCondition.READY,
        holds=ready.status == "True",
        reason=ServiceReason(ready.reason),
        message=ready.message,
    )


def _meets_slo(found: ServiceStatus | None) -> list[ConditionUpdate]:
    """Returns the condition MeetsSlo of a service with a latency target."""
    return [
        ConditionUpdate(
            ServiceCondition.MEETS_SLO,
            holds=_HOLDS[condition.status],
            reason=SloReason(condition.reason),
            message=condition.message,
        )
        for condition in (() if found is None else found.conditions)
        if condition.type == ServiceCondition.MEETS_SLO
    ]
