"""``when``: CEL conditions over ``params``, ``matrix`` and ``steps['x'].port.field``.

A condition is evaluated once the steps that it reads have ended: in the process of the control
plane where all runs have one owner, in a sandboxed one elsewhere. A condition that reads a field of
a skipped step is false, so that a skip propagates; ``steps['x'] == null`` tests for it.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.graph.evaluation_budget import EvaluationBudget

if TYPE_CHECKING:
    from flowmesh_core.graph.condition_reads import StepRead

_NULL_REMEDY = (
    "compare it with null first, as in steps['judge'].metrics.mean != null &&"
    " steps['judge'].metrics.mean > 0.5"
)
StepValues = Mapping[str, Mapping[str, Any]]
"""Of one step: its ports' fields."""


class ConditionQuery(msgspec.Struct, frozen=True):
    """A condition with the values that it may read.

    Attributes:
        text: ``StepPlan.when``.
        params: ``Plan.params``.
        matrix: ``StepPlan.matrix``.
        steps: for every path of ``StepPlan.when_steps``: its ports' fields (the values of metrics;
            ``{"count": rows}`` for a data set), or None where it was skipped.
        granted: steps that the evaluation may take.
        run_total: what all evaluations of the run may take together.
    """

    text: str
    params: Mapping[str, Any]
    matrix: Mapping[str, Any]
    steps: Mapping[str, StepValues | None]
    granted: int
    run_total: int


class ConditionVerdict(msgspec.Struct, frozen=True):
    """The result of an evaluation.

    Attributes:
        holds: whether the step runs.
        steps: that the evaluation took.
        failure: why it has no result; None where it has one.
    """

    holds: bool = False
    steps: int = 0
    failure: Failure | None = None


def verdict_of(query: ConditionQuery) -> ConditionVerdict:
    """Evaluates a condition within the steps that it was granted."""
    budget = EvaluationBudget(query.run_total, query.run_total - query.granted)
    before = budget.spent
    try:
        holds = evaluate(
            query.text, params=query.params, matrix=query.matrix, steps=query.steps, budget=budget
        )
    except AttemptError as e:
        return ConditionVerdict(steps=budget.spent - before, failure=e.failure)
    return ConditionVerdict(holds, budget.spent - before)


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

    found: tuple[StepRead, ...] = ()
    try:
        read = reads(text)
        found = read.steps
        names = select({"params": params, "matrix": matrix, "steps": steps}, read.paths)
        return truth(text, names, budget)
    except OverBudgetConditionError as e:
        raise AttemptError(Failure(FailureKind.BAD_INPUT, e.message, e.remedy)) from e
    except ConditionError as e:
        if any(s is None for s in steps.values()):
            return False
        raise _of_null(found, steps) or _failed(str(e)) from e


def select(value: Any, paths: Collection[tuple[str, ...]]) -> Any:
    """Returns only those parts of a value that a path leads to (``condition_reads.Reads``)."""
    if () in paths or not isinstance(value, Mapping):
        return value
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in paths:
        below.setdefault(first, []).append(tuple(rest))
    return {name: select(value[name], rest) for name, rest in below.items() if name in value}


def _of_null(
    found: Collection["StepRead"], steps: Mapping[str, StepValues | None]
) -> AttemptError | None:
    """Returns the error that names a null among what a failed condition reads, or None."""
    for read in found:
        ports = steps.get(read.step) or {}
        fields = ports.get(read.port)
        if fields is None or read.field not in fields or fields[read.field] is not None:
            continue
        message = f"steps['{read.step}'].{read.port}.{read.field} is null"
        counts = ports.get("counts") or {}
        if counts.get("unparsed"):
            message += f": {counts['unparsed']} of {counts['rows']} answers contained no verdict"
        return AttemptError(Failure(FailureKind.BAD_INPUT, message, _NULL_REMEDY))
    return None


def _failed(message: str) -> AttemptError:
    remedy = "compare the value, as in steps['score'].metrics.accuracy > 0.5; test it with has(...)"
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy))
