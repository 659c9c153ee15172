"""What a workflow object needs, decided from what it says and whether its run is known."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_core.spec.quantities import budget, seconds
from flowmesh_core.status.conditions import WorkflowCondition
from flowmesh_operator.kube.informer_cache import ENDED, Object


class ReconcileDecision(Enum):
    """What is to be done about one object."""

    NOTHING = "nothing"
    SUBMIT = "submit"
    """its run is not known here: it is new, or it ended and that was not shown"""
    AMEND = "amend"
    """it goes on, and its status does not say that the spec as it is was looked at"""
    SHOW = "show"
    """its status does not say what holds now"""
    CANCEL = "cancel"
    """its run goes on, and the object is gone or going"""


def need(obj: Object | None, *, live: bool, epoch: int) -> ReconcileDecision:
    """Decides.

    Args:
        obj: the object; None where it is gone.
        live: whether the control plane knows a run of its uid that goes on.
        epoch: the leader's.
    """
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        return ReconcileDecision.CANCEL if live else ReconcileDecision.NOTHING
    status = obj.get("status") or {}
    looked_at = observed(obj)
    if live:
        if not looked_at:  # it may have changed before the first look was shown
            return ReconcileDecision.AMEND
        return ReconcileDecision.NOTHING if status.get("epoch") == epoch else ReconcileDecision.SHOW
    if status.get("phase") not in ENDED:
        return ReconcileDecision.SUBMIT
    if looked_at:
        return ReconcileDecision.NOTHING
    return ReconcileDecision.SUBMIT if is_refused(status) else ReconcileDecision.SHOW


def observed(obj: Object) -> bool:
    """Whether the object's status is about the spec that it has now."""
    status = obj.get("status") or {}
    return bool(status.get("observedGeneration", 0) == obj["metadata"].get("generation"))


def is_refused(status: Mapping[str, Any]) -> bool:
    """Whether a status says that the workflow was not accepted."""
    return any(
        c.get("type") == WorkflowCondition.ACCEPTED and c.get("status") == "False"
        for c in status.get("conditions") or ()
    )


def amendments(spec: Mapping[str, Any], terms: RunTerms) -> dict[str, Any]:
    """What a run has to be told so that it is as the spec wants it; empty where it is.

    Args:
        spec: the object's; the API server has checked its fields' form.
        terms: of the live run.
    """
    wanted: dict[str, Any] = {
        "suspend": bool(spec.get("suspend", False)),
        "priority": int(spec.get("priority", 0)),
        "budgetNanousd": int(budget(spec["budgetUsd"])) if spec.get("budgetUsd") else 0,
        "deadlineS": seconds(spec["deadline"]) if spec.get("deadline") else 0.0,
    }
    has: dict[str, Any] = {
        "suspend": terms.suspended,
        "priority": terms.priority,
        "budgetNanousd": terms.budget_nanousd,
        "deadlineS": terms.deadline_s,
    }
    return {key: value for key, value in wanted.items() if has[key] != value}
