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
"""Of a message; the API server takes 32,768 bytes' worth of characters."""
_CAUSES = {
    FailureKind.BUDGET: WorkflowReason.BUDGET,
    FailureKind.DEADLINE: WorkflowReason.DEADLINE,
}


@dataclass(frozen=True, slots=True)
class WorkflowConditionUpdate:
    """What is said of one condition."""

    type: WorkflowCondition
    holds: bool
    reason: WorkflowReason
    message: str = ""


def of_run(run: RunStatus) -> list[WorkflowConditionUpdate]:
    """The four conditions of an accepted run."""
    said = [WorkflowConditionUpdate(WorkflowCondition.ACCEPTED, True, WorkflowReason.ADMITTED)]
    match run.phase:
        case Phase.SUCCEEDED:
            return [
                *said,
                WorkflowConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.ENDED),
                WorkflowConditionUpdate(WorkflowCondition.COMPLETE, True, WorkflowReason.SUCCEEDED),
                WorkflowConditionUpdate(WorkflowCondition.FAILED, False, WorkflowReason.SUCCEEDED),
            ]
        case Phase.FAILED | Phase.CANCELLED:
            reason, message = _cause(run), ending(run)
            return [
                *said,
                WorkflowConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.ENDED),
                WorkflowConditionUpdate(WorkflowCondition.COMPLETE, False, reason, message),
                WorkflowConditionUpdate(WorkflowCondition.FAILED, True, reason, message),
            ]
        case _:
            return [
                *said,
                _under_way(run),
                WorkflowConditionUpdate(
                    WorkflowCondition.COMPLETE, False, WorkflowReason.UNFINISHED
                ),
                WorkflowConditionUpdate(WorkflowCondition.FAILED, False, WorkflowReason.UNFINISHED),
            ]


def refused(reason: WorkflowReason, message: str) -> list[WorkflowConditionUpdate]:
    """The conditions of a workflow that is not accepted, and will not be as it stands."""
    return [
        WorkflowConditionUpdate(WorkflowCondition.ACCEPTED, False, reason, message),
        WorkflowConditionUpdate(WorkflowCondition.FAILED, True, reason, message),
    ]


def held_up(reason: WorkflowReason, message: str) -> list[WorkflowConditionUpdate]:
    """The conditions of a workflow that is not accepted yet; it is tried again."""
    return [WorkflowConditionUpdate(WorkflowCondition.ACCEPTED, False, reason, message)]


def stamped(
    said: Iterable[WorkflowConditionUpdate],
    before: Sequence[Mapping[str, Any]],
    generation: int,
    now_s: float,
) -> list[dict[str, Any]]:
    """Conditions as the API server keeps them; the time is the former one where nothing changed.

    Args:
        said: the conditions.
        before: those of the object's status.
        generation: of the spec they are about.
        now_s: seconds since the epoch.
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
    """Why a run ended as it did: the step, the reason and the remedy."""
    step = f"step {run.failed_step}: " if run.failed_step else ""
    remedy = f"; {run.remedy}" if run.remedy else ""
    return f"{step}{run.message}{remedy}"


def _cause(run: RunStatus) -> WorkflowReason:
    cause = _CAUSES.get(FailureKind(run.reason)) if run.reason else None
    if cause is not None:
        return cause
    cancelled = run.phase == Phase.CANCELLED
    return WorkflowReason.CANCELLED if cancelled else WorkflowReason.STEP_FAILED


def _under_way(run: RunStatus) -> WorkflowConditionUpdate:
    if run.phase == Phase.SUSPENDED:
        message = "nothing new is started until spec.suspend is false"
        return WorkflowConditionUpdate(
            WorkflowCondition.RUNNING, False, WorkflowReason.SUSPENDED, message
        )
    if run.counts.get(StepState.RUNNING):
        return WorkflowConditionUpdate(
            WorkflowCondition.RUNNING, True, WorkflowReason.STEPS_RUNNING
        )
    waiting = next((s for s in run.steps if s.state == StepState.READY and s.reason), None)
    message = run.message if waiting is None else _waits(waiting)
    return WorkflowConditionUpdate(
        WorkflowCondition.RUNNING, False, WorkflowReason.WAITING, message
    )


def _waits(step: StepStatus) -> str:
    return f"step {step.path}: {step.reason}" + (f": {step.message}" if step.message else "")
