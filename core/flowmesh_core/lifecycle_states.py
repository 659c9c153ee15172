"""The states of a step run and of a run, and the one transition table.

``docs/states.md`` says each state in prose. An unknown pair raises with the run's story.
"""

from enum import StrEnum


class StepState(StrEnum):
    """Where a step run is."""

    PENDING = "PENDING"
    READY = "READY"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Phase(StrEnum):
    """Where a run is."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


ENDED = frozenset({StepState.COMPLETED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED})
"""States in which a step needs nothing more (unless a blob of a completed one is lost)."""

TRANSITIONS: frozenset[tuple[StepState, StepState]] = frozenset(
    {
        (StepState.PENDING, StepState.READY),
        (StepState.PENDING, StepState.RUNNING),  # a chunked step whose first chunk starts
        (StepState.PENDING, StepState.SKIPPED),
        (StepState.PENDING, StepState.FAILED),  # its condition or its inputs are wrong
        (StepState.PENDING, StepState.CANCELLED),
        (StepState.READY, StepState.RUNNING),
        (StepState.READY, StepState.COMPLETED),  # a hit
        (StepState.READY, StepState.FAILED),
        (StepState.READY, StepState.CANCELLED),
        (StepState.RUNNING, StepState.COMPLETED),
        (StepState.RUNNING, StepState.READY),  # a loss
        (StepState.RUNNING, StepState.FAILED),
        (StepState.RUNNING, StepState.CANCELLED),
        (StepState.COMPLETED, StepState.READY),  # a blob that is still needed is lost
    }
)
"""Every allowed change of a step run's state."""


class ActionState(StrEnum):
    """Where an action is between being named and being published."""

    LOOKING_UP = "looking-up"
    READY = "ready"
    RUNNING = "running"
    PUBLISHING = "publishing"
    DONE = "done"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class HitKind(StrEnum):
    """How a step or a chunk of it came to a result without running for this run alone."""

    PUBLISHED = "published"
    IN_FLIGHT = "in-flight"
    STEP_LEVEL = "step-level"
