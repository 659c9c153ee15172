"""Names of the conditions of a ``FlowMeshWorkflow`` and of their reasons, for the operator."""

from enum import StrEnum


class WorkflowCondition(StrEnum):
    """What can be waited for with ``kubectl wait --for=condition=...``."""

    ACCEPTED = "Accepted"  # the workflow was checked, compiled and written; it runs or will
    RUNNING = "Running"  # steps are under way
    COMPLETE = "Complete"  # every step completed or was skipped
    FAILED = "Failed"  # the run ended otherwise, or was not accepted


class WorkflowReason(StrEnum):
    """Why a condition of a workflow is as it is."""

    ADMITTED = "Admitted"  # Accepted: nothing is wrong with it
    INVALID = "Invalid"  # not Accepted: the message lists what `fmesh validate` would
    UNREADABLE = "Unreadable"  # not Accepted yet: a ConfigMap or reference is not there to be read
    UNAVAILABLE = "Unavailable"  # not Accepted yet: the store does not answer; tried again
    UNMEETABLE = "Unmeetable"  # not Accepted: more is expected than its budget or deadline allows
    UNPLACEABLE = "Unplaceable"  # not Accepted yet: no pool can ever run a step; tried again
    QUOTA_EXCEEDED = "QuotaExceeded"  # not Accepted (yet): the namespace's quota is used up
    STEPS_RUNNING = "StepsRunning"  # Running: at least one action runs
    WAITING = "Waiting"  # not Running: the message says what the steps wait for
    SUSPENDED = "Suspended"  # not Running: spec.suspend
    UNFINISHED = "Unfinished"  # not Complete: the run goes on
    SUCCEEDED = "Succeeded"  # Complete
    STEP_FAILED = "StepFailed"  # Failed: a step failed; the message names it and the remedy
    CANCELLED = "Cancelled"  # Failed: a user cancelled it
    BUDGET = "BudgetExceeded"  # Failed: spec.budgetUsd is used up
    DEADLINE = "DeadlineExceeded"  # Failed: spec.deadline has passed
    ENDED = "Ended"  # not Running: the run is over
