"""``when``: CEL conditions over ``params``, ``matrix`` and ``steps['x'].port.field``.

The machine evaluates a condition once the steps that it reads have ended. A condition that reads a
field of a skipped step is false, so that a skip propagates; ``steps['x'] == null`` tests for it.
"""

from collections.abc import Collection, Mapping
from typing import Any

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.graph.evaluation_budget import EvaluationBudget

StepValues = Mapping[str, Mapping[str, Any]]
"""Of one step: its ports' fields."""


def evaluate(
    text: str,
    *,
    params: Mapping[str, Any],
    matrix: Mapping[str, Any],
    steps: Mapping[str, StepValues | None],
    budget: EvaluationBudget,
) -> bool:
    """Returns whether a step runs.

    Args:
        text: ``StepPlan.when``.
        params: ``Plan.params``.
        matrix: ``StepPlan.matrix``.
        steps: for every path of ``StepPlan.when_steps``: its ports' fields (the values of metrics;
            ``{"count": rows}`` for a data set), or None where it was skipped.
        budget: of the run's conditions; the steps of this evaluation are added.

    Raises:
        AttemptError: the condition cannot be evaluated on these values, or not within the budget
            (kind ``bad-input``).
    """
    from flowmesh_core.graph.cel import (  # noqa: PLC0415 - CEL is slow to load
        ConditionError,
        OverBudgetConditionError,
        truth,
    )
    from flowmesh_core.graph.condition_reads import reads  # noqa: PLC0415 - so is what parses it

    try:
        paths = reads(text).paths
        names = _select({"params": params, "matrix": matrix, "steps": steps}, paths)
        return truth(text, names, budget)
    except OverBudgetConditionError as e:
        raise AttemptError(Failure(FailureKind.BAD_INPUT, e.message, e.remedy)) from e
    except ConditionError as e:
        if any(s is None for s in steps.values()):
            return False
        raise _failed(str(e)) from e


def _select(value: Any, paths: Collection[tuple[str, ...]]) -> Any:
    """Returns only those parts of a value that a path leads to."""
    if () in paths or not isinstance(value, Mapping):
        return value
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in paths:
        below.setdefault(first, []).append(tuple(rest))
    return {name: _select(value[name], rest) for name, rest in below.items() if name in value}


def _failed(message: str) -> AttemptError:
    remedy = "compare the value, as in steps['score'].metrics.accuracy > 0.5; test it with has(...)"
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))
