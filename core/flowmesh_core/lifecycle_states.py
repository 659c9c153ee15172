"""The one transition table of step runs, and their final states.

``docs/states.md`` describes each state. A pair that is not in the table raises an error that lists
the run's transitions.
"""

from flowmesh_api.v1.enums import StepState

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
