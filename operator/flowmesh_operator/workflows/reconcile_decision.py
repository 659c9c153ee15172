"""Decides what a workflow object needs, from its spec and status and whether its run is live."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_core.spec.quantities import budget, seconds
from flowmesh_core.status.conditions import WorkflowCondition
from flowmesh_documents.parameters import filled
from flowmesh_operator.kube.informer_cache import ENDED, Object

_TERMS = ("budgetUsd", "deadline")


class ReconcileDecision(Enum):
    """The action that one object needs."""

    NOTHING = "nothing"
    SUBMIT = "submit"
    """its run is not live: it is new, or it ended and its status does not show that"""
    AMEND = "amend"
    """its run is live, and its status has not observed the current spec"""
    PUBLISH_STATUS = "publish-status"
    """its status is outdated"""
    CANCEL = "cancel"
    """its run is live, and the object is deleted or being deleted"""


def decide(obj: Object | None, *, live: bool, epoch: int) -> ReconcileDecision:
    """Returns the action that an object needs.

    Args:
        obj: the object; None where it is deleted.
        live: whether the control plane has a run of its uid that has not ended.
        epoch: the leader's epoch.
    """
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        return ReconcileDecision.CANCEL if live else ReconcileDecision.NOTHING
    status = obj.get("status") or {}
    is_observed = observed(obj)
    if live:
        if not is_observed:  # it may have changed before its first status was written
            return ReconcileDecision.AMEND
        return (
            ReconcileDecision.NOTHING
            if status.get("epoch") == epoch
            else ReconcileDecision.PUBLISH_STATUS
        )
    if status.get("phase") not in ENDED:
        return ReconcileDecision.SUBMIT
    if is_observed:
        return ReconcileDecision.NOTHING
    return ReconcileDecision.SUBMIT if is_refused(status) else ReconcileDecision.PUBLISH_STATUS


def observed(obj: Object) -> bool:
    """Returns whether the object's status has observed its current spec."""
    status = obj.get("status") or {}
    return bool(status.get("observedGeneration", 0) == obj["metadata"].get("generation"))


def is_refused(status: Mapping[str, Any]) -> bool:
    """Returns whether a status says that the workflow was not accepted."""
    return any(
        c.get("type") == WorkflowCondition.ACCEPTED and c.get("status") == "False"
        for c in status.get("conditions") or ()
    )


def amendments(spec: Mapping[str, Any], terms: RunTerms) -> dict[str, Any]:
    """Returns the changes that bring a run's terms to the spec; empty if there are none.

    Args:
        spec: the object's spec, validated by the API server; a parameter in a term stands in it
            since the run was admitted with it.
        terms: the live run's terms.
    """
    term = filled({name: spec.get(name) for name in _TERMS}, spec.get("params"))
    wanted: dict[str, Any] = {
        "suspend": bool(spec.get("suspend", False)),
        "priority": int(spec.get("priority", 0)),
        "budgetNanousd": int(budget(amount)) if (amount := term.get("budgetUsd")) else 0,
        "deadlineS": seconds(deadline) if (deadline := term.get("deadline")) else 0.0,
    }
    current: dict[str, Any] = {
        "suspend": terms.suspended,
        "priority": terms.priority,
        "budgetNanousd": terms.budget_nanousd,
        "deadlineS": terms.deadline_s,
    }
    return {key: value for key, value in wanted.items() if current[key] != value}
