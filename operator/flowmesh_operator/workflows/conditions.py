"""The conditions of a workflow's status."""

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_core.errors import FailureKind
from flowmesh_core.status.conditions import WorkflowCondition, WorkflowReason
from flowmesh_operator.kube.conditions import ConditionUpdate

MOST_CHARS = 16_384
"""Limit of a message; the API server accepts 32,768 bytes."""
_CAUSES = {
    FailureKind.BUDGET: WorkflowReason.BUDGET,
    FailureKind.DEADLINE: WorkflowReason.DEADLINE,
}


def of_run(run: RunStatus) -> list[ConditionUpdate]:
    """Returns the four conditions of an accepted run."""
    accepted = [ConditionUpdate(WorkflowCondition.ACCEPTED, True, WorkflowReason.ADMITTED)]
    match run.phase:
        case Phase.SUCCEEDED:
            return [
                *accepted,
                ConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.ENDED),
                ConditionUpdate(WorkflowCondition.COMPLETE, True, WorkflowReason.SUCCEEDED),
                ConditionUpdate(WorkflowCondition.FAILED, False, WorkflowReason.SUCCEEDED),
            ]
        case Phase.FAILED | Phase.CANCELLED:
            reason, message = _cause(run), ending(run)
            return [
                *accepted,
                ConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.ENDED),
                ConditionUpdate(WorkflowCondition.COMPLETE, False, reason, message),
                ConditionUpdate(WorkflowCondition.FAILED, True, reason, message),
            ]
        case _:
            return [
                *accepted,
                _running(run),
                ConditionUpdate(WorkflowCondition.COMPLETE, False, WorkflowReason.UNFINISHED),
                ConditionUpdate(WorkflowCondition.FAILED, False, WorkflowReason.UNFINISHED),
            ]


def refused(reason: WorkflowReason, message: str) -> list[ConditionUpdate]:
    """Returns the conditions of a workflow that is refused until its spec changes."""
    return [
        ConditionUpdate(WorkflowCondition.ACCEPTED, False, reason, message),
        ConditionUpdate(WorkflowCondition.FAILED, True, reason, message),
    ]


def not_accepted_yet(reason: WorkflowReason, message: str) -> list[ConditionUpdate]:
    """Returns the conditions of a workflow that is not accepted yet and will be retried."""
    return [ConditionUpdate(WorkflowCondition.ACCEPTED, False, reason, message)]


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


def _running(run: RunStatus) -> ConditionUpdate:
    if run.phase == Phase.SUSPENDED:
        message = "no new attempts start until spec.suspend is false"
        if run.reason:  # not by its spec
            message = f"{run.message}; {run.remedy}" if run.remedy else run.message
        return ConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.SUSPENDED, message)
    if run.counts.get(StepState.RUNNING):
        return ConditionUpdate(WorkflowCondition.RUNNING, True, WorkflowReason.STEPS_RUNNING)
    waiting = next((s for s in run.steps if s.state == StepState.READY and s.reason), None)
    message = run.message if waiting is None else _waiting_message(waiting)
    return ConditionUpdate(WorkflowCondition.RUNNING, False, WorkflowReason.WAITING, message)


def _waiting_message(step: StepStatus) -> str:
    return f"step {step.path}: {step.reason}" + (f": {step.message}" if step.message else "")
