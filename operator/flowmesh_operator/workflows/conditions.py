"""The conditions of a workflow's status, with the time at which each last changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.errors import FailureKind
from flowmesh_core.status.conditions import WorkflowCondition, WorkflowReason
from flowmesh_operator.kube.timestamps import timestamp

MOST_CHARS = 16_384
"""Limit of a message; the API server accepts 32,768 bytes."""
_CAUSES = {
    FailureKind.BUDGET: WorkflowReason.BUDGET,
    FailureKind.DEADLINE: WorkflowReason.DEADLINE,
}


@dataclass(frozen=True, slots=True)
class WorkflowConditionUpdate:
    """The new value of one condition."""

    type: WorkflowCondition
    holds: bool
    reason: WorkflowReason
    message: str = ""


def of_run(run: RunStatus) -> list[WorkflowConditionUpdate]:
    """Returns the four conditions of an accepted run."""
    accepted = [WorkflowConditionUpdate(WorkflowCondition.ACCEPTED, True, WorkflowReason.ADMITTED)]
    match run.phase:
        case Phase.SUCCEEDED:
            return [
                *accepted,
                WorkflowConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.ENDED),
                WorkflowConditionUpdate(WorkflowCondition.COMPLETE, True, WorkflowReason.SUCCEEDED),
                WorkflowConditionUpdate(WorkflowCondition.FAILED, False, WorkflowReason.SUCCEEDED),
            ]
        case Phase.FAILED | Phase.CANCELLED:
            reason, message = _cause(run), ending(run)
            return [
                *accepted,
                WorkflowConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.ENDED),
                WorkflowConditionUpdate(WorkflowCondition.COMPLETE, False, reason, message),
                WorkflowConditionUpdate(WorkflowCondition.FAILED, True, reason, message),
            ]
        case _:
            return [
                *accepted,
                _running(run),
                WorkflowConditionUpdate(
                    WorkflowCondition.COMPLETE, False, WorkflowReason.UNFINISHED
                ),
                WorkflowConditionUpdate(WorkflowCondition.FAILED, False, WorkflowReason.UNFINISHED),
            ]


def refused(reason: WorkflowReason, message: str) -> list[WorkflowConditionUpdate]:
    """Returns the conditions of a workflow that is refused until its spec changes."""
    return [
        WorkflowConditionUpdate(WorkflowCondition.ACCEPTED, False, reason, message),
        WorkflowConditionUpdate(WorkflowCondition.FAILED, True, reason, message),
    ]


def not_accepted_yet(reason: WorkflowReason, message: str) -> list[WorkflowConditionUpdate]:
    """Returns the conditions of a workflow that is not accepted yet and will be retried."""
    return [WorkflowConditionUpdate(WorkflowCondition.ACCEPTED, False, reason, message)]


def stamped(
    said: Iterable[WorkflowConditionUpdate],
    before: Sequence[Mapping[str, Any]],
    generation: int,
    now_s: float,
) -> list[dict[str, Any]]:
    """Returns Kubernetes conditions; the transition time changes only with the status.

    Args:
        said: the new conditions.
        before: the conditions of the object's current status.
        generation: the observed generation of the spec.
        now_s: seconds since 1970.
    """
    known = {c.get("type"): c for c in before}
    found = []
    for one in said:
        status = "True" if one.holds else "False"
        former = known.get(one.type, {})
        same = former.get("status") == status and former.get("lastTransitionTime")
        found.append(
            {
                "type": str(one.type),
                "status": status,
                "reason": str(one.reason),
                "message": one.message[:MOST_CHARS],
                "lastTransitionTime": same or timestamp(now_s),
                "observedGeneration": generation,
            }
        )
    return found


def ending(run: RunStatus) -> str:
    """Returns why a run ended: the step, the reason and the remedy."""
    step = f"step {run.failed_step}: " if run.failed_step else ""
    remedy = f"; {run.remedy}" if run.remedy else ""
    return f"{step}{run.message}{remedy}"


def _cause(run: RunStatus) -> WorkflowReason:
    cause = _CAUSES.get(FailureKind(run.reason)) if run.reason else None
    if cause is not None:
        return cause
    cancelled = run.phase == Phase.CANCELLED
    return WorkflowReason.CANCELLED if cancelled else WorkflowReason.STEP_FAILED


def _running(run: RunStatus) -> WorkflowConditionUpdate:
    if run.phase == Phase.SUSPENDED:
        message = "no new attempts start until spec.suspend is false"
        if run.reason:  # not by its spec
            message = f"{run.message}; {run.remedy}" if run.remedy else run.message
        return WorkflowConditionUpdate(
            WorkflowCondition.RUNNING, False, WorkflowReason.SUSPENDED, message
        )
    if run.counts.get(StepState.RUNNING):
        return WorkflowConditionUpdate(
            WorkflowCondition.RUNNING, True, WorkflowReason.STEPS_RUNNING
        )
    waiting = next((s for s in run.steps if s.state == StepState.READY and s.reason), None)
    message = run.message if waiting is None else _waiting_message(waiting)
    return WorkflowConditionUpdate(
        WorkflowCondition.RUNNING, False, WorkflowReason.WAITING, message
    )


def _waiting_message(step: StepStatus) -> str:
    return f"step {step.path}: {step.reason}" + (f": {step.message}" if step.message else "")
