"""``when``: CEL conditions over ``params``, ``matrix`` and ``steps['x'].port.field``.

The machine evaluates a condition once the steps that it reads have ended. A condition that reads a
field of a skipped step is false, so that skipping goes on; ``steps['x'] == null`` asks for it.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.errors import AttemptError, Failure, FailureKind

StepValues = Mapping[str, Mapping[str, Any]]
"""Of one step: its ports' fields."""


def evaluate(
    text: str,
    *,
    params: Mapping[str, Any],
    matrix: Mapping[str, Any],
    steps: Mapping[str, StepValues | None],
) -> bool:
    """Whether a step runs.

    Args:
        text: ``StepPlan.when``.
        params: ``Plan.params``.
        matrix: ``StepPlan.matrix``.
        steps: for every path of ``StepPlan.when_steps``: its ports' fields (the values of metrics;
            ``{"count": rows}`` for a data set), or None where it was skipped.

    Raises:
        AttemptError: the condition cannot be evaluated on these values (kind ``bad-input``).
    """
    from flowmesh_core.graph.cel import ConditionError, truth  # noqa: PLC0415 - CEL is slow to load

    try:
        return truth(text, {"params": params, "matrix": matrix, "steps": steps})
    except ConditionError as e:
        if any(s is None for s in steps.values()):
            return False
        raise _failed(str(e)) from e


def _failed(message: str) -> AttemptError:
    remedy = "compare the value, as in steps['score'].metrics.accuracy > 0.5; has(...) asks first"
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))
