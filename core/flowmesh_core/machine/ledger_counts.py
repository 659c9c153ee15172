"""Counts what a run's ledger says into its status, as its receipt counts it.

Called for each line that is written, and for each that a restart reads back. So status, run,
receipt and the fabric's account show one number, also after a resume: an execution is a line of an
attempt that ended with a result, in the ledger of the run that subscribed to it first.
"""

from flowmesh_api.v1.enums import HitKind
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, Line, StepLine
from flowmesh_core.machine.model import Run, StepRun


def count(run: Run, line: Line) -> bool:
    """Adds a line to the counts of its run and its step; returns whether it is an execution."""
    # By type: isinstance of a msgspec class takes 0.2 us, and half of all lines are of steps.
    if type(line) is StepLine:
        return False
    if type(line) is AttemptLine:
        return _count_attempt(run, run.steps.get(line.step), line)
    if type(line) is HitLine:
        _count_hit(run, run.steps.get(line.step), line)
    return False


def _count_attempt(run: Run, step: StepRun | None, line: AttemptLine) -> bool:
    joules = line.joules / max(1, line.sharers)
    executed = line.outcome in EXECUTED_OUTCOMES
    run.paid_nanousd += line.share_nanousd
    run.joules += joules
    run.joules_estimated = run.joules_estimated or line.joules_estimated
    if executed:
        run.executions[line.action_id] = (line.step, line.chunk)
    if step is not None:
        step.executed += executed
        step.paid_nanousd += line.share_nanousd
        step.joules += joules
        step.tokens += line.tokens_in + line.tokens_out
    return executed


def _count_hit(run: Run, step: StepRun | None, line: HitLine) -> None:
    run.saved_nanousd += line.saved_nanousd
    if step is not None:
        step.hits += 1
        step.in_flight += line.hit == HitKind.IN_FLIGHT
        step.saved_nanousd += line.saved_nanousd
        others = (u for u in line.sharers or (line.producer,) if u and u != run.uid)
        step.shared_with.update(dict.fromkeys(others))
