"""Conditions of steps: they are evaluated outside the machine, and each result is kept.

The machine emits ``EvaluateCondition`` when a step's parents have ended; the step stays pending
until ``ConditionEvaluated`` comes. The result is a line of the ledger, so a restart does not
evaluate the condition again. It counts for the artifacts that the condition has read: when a parent
is made anew with another output, the condition is evaluated again.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_api.v1.enums import StepState
from flowmesh_core.accounting.ledger_lines import ConditionLine
from flowmesh_core.errors import Failure, FailureKind
from flowmesh_core.graph.conditions import ConditionQuery
from flowmesh_core.identity.digest import digest_value
from flowmesh_core.machine.commands import EvaluateCondition
from flowmesh_core.machine.events import ConditionEvaluated
from flowmesh_core.machine.model import PendingEvaluation, Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest


def verdict(run: Run, step: StepRun) -> bool | None:
    """Returns whether a step's condition holds; None while it is being evaluated.

    Where it could not be evaluated, the step has a failure afterwards.
    """
    if step.holds is None and not step.evaluation:
        known = run.verdicts.get((step.plan.path, _digest(run, step))) if run.verdicts else None
        if known is None:
            run.unevaluated[step.plan.path] = None
        else:
            run.conditions.spent += known.evaluation_steps
            _accept(step, known)
    return step.holds


def evaluate_next(state: State, run: Run) -> None:
    """Starts the evaluations that wait, as far as the run's budget certainly allows."""
    while run.unevaluated:
        path = next(iter(run.unevaluated))
        step = run.steps[path]
        granted = None if step.ended else run.conditions.reserve()
        if granted is None and not step.ended:
            return
        del run.unevaluated[path]
        if granted is not None:
            _evaluate(state, run, step, granted)


def _evaluate(state: State, run: Run, step: StepRun, granted: int) -> None:
    state.evaluations_made += 1
    number = step.evaluation = state.evaluations_made
    run.evaluations[number] = PendingEvaluation(step.plan.path, _digest(run, step), granted)
    query = ConditionQuery(
        text=step.plan.when,
        params=run.plan.params,
        matrix=step.plan.matrix,
        steps={path: _fields(run.steps[path]) for path in step.plan.when_steps},
        granted=granted,
        run_total=run.conditions.total,
    )
    state.emit(EvaluateCondition(run.uid, number, query))


def evaluated(state: State, event: ConditionEvaluated, now_s: float) -> None:
    """Applies the result of an evaluation; one that nothing waits for only counts as spent."""
    run = state.runs.get(event.uid)
    pending = run.evaluations.pop(event.number, None) if run is not None else None
    if run is None or pending is None:
        return
    result = event.verdict
    run.conditions.settle(pending.granted, result.steps)
    state.touched[run.uid] = None
    step = run.steps[pending.step]
    if step.evaluation != event.number or step.ended:
        return
    line = ConditionLine(
        time_s=now_s,
        step=pending.step,
        digest=pending.digest,
        holds=result.holds,
        evaluation_steps=result.steps,
        message=result.failure.message if result.failure else "",
        remedy=result.failure.remedy if result.failure else "",
    )
    state.append(run, line)
    _accept(step, line)
    state.touch(run, pending.step)


def forget(run: Run, step: StepRun) -> None:
    """Forgets a condition's result, because a step that it may read is made anew."""
    step.evaluation, step.holds = 0, None
    run.unevaluated.pop(step.plan.path, None)


def _accept(step: StepRun, line: ConditionLine) -> None:
    step.evaluation, step.holds = 0, line.holds
    if line.message:
        step.failure = Failure(FailureKind.BAD_INPUT, line.message, line.remedy)


def _digest(run: Run, step: StepRun) -> Digest:
    """Returns what names an evaluation: its condition, and the artifacts that it reads."""
    read = {path: _digests(run.steps[path]) for path in step.plan.when_steps}
    return digest_value("condition", [step.plan.when, read])


def _digests(step: StepRun) -> dict[str, Digest] | None:
    if step.state is StepState.SKIPPED:
        return None
    return {port: a.digest for port, a in step.outputs.items() if a is not None}


def _fields(step: StepRun) -> dict[str, Mapping[str, Any]] | None:
    """What a condition may read of a step: metrics' values and data sets' counts by port."""
    if step.state is StepState.SKIPPED:
        return None
    return {
        port: a.value if a.value is not None else {"count": a.rows}
        for port, a in step.outputs.items()
        if a is not None
    }
