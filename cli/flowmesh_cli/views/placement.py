"""Renders the candidate workers of actions with their utility, and where actions ran."""

from collections.abc import Container

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.runs import StepStatus
from flowmesh_api.v1.why import AttemptLine, Candidate, Explanation, ScoredWorker
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.steps import state_word
from flowmesh_cli.views.why import show_attempts
from flowmesh_core.lifecycle_states import ENDED

_HEADINGS = ["worker", "U", "throughput", "cost", "locality", "starts in", "ends in", "price", ""]


def show_explanation(
    terminal: Terminal, found: Explanation, step: StepStatus, loading: Container[str] = ()
) -> None:
    """Writes the scores of actions that wait or run, and where ended actions ran.

    Args:
        terminal: where to write.
        found: the explanation.
        step: the explained step.
        loading: workers on which the step's engine is still loading.
    """
    terminal.text(f"{step.path} ({step.engine}) is {state_word(step)}")
    scored = found.actions or any(attempt.placed for attempt in found.attempts)
    if scored and any(found.weights):
        alpha, beta, gamma = found.weights
        terminal.text(f"  U = {alpha:g} throughput - {beta:g} cost + {gamma:g} locality")
    for action in found.actions:
        placed_on = f" on {', '.join(action.workers)}" if action.workers else ""
        terminal.text(f"  action {action.part} ({action.action_id[:12]}) {action.state}{placed_on}")
        if action.candidates:
            rows = [_row(candidate, loading) for candidate in action.candidates]
            _show_table(terminal, rows)
        else:
            terminal.text("    no worker can run it now; `fmesh why` shows why")
    if found.more:
        terminal.text(f"  and {formatting.count(found.more, 'action')} more")
    if not found.actions and found.attempts:
        terminal.text("  no action of it waits or runs; it ran here:")
    elif not found.actions:
        terminal.text(f"  {_never_ran(step)}")
    show_attempts(terminal, found.attempts)
    for attempt in found.attempts:
        if attempt.placed:
            _show_choice(terminal, attempt)


def _show_choice(terminal: Terminal, attempt: AttemptLine) -> None:
    """Writes the scores of the decision that placed an attempt and its batch."""
    chunk = f"action {attempt.chunk}: " if attempt.chunk > 0 else ""
    others = len(attempt.placed) - 1
    before = f" before {formatting.count(others, 'other')}" if others else ""
    terminal.text(f"  {chunk}{attempt.worker} was chosen{before}:")
    _show_table(terminal, [_scored(w) for w in attempt.placed])


def _show_table(terminal: Terminal, rows: list[list[str]]) -> None:
    terminal.table(
        _HEADINGS, rows, right=_HEADINGS[1:-1], cut="worker", optional=_HEADINGS[-2:-5:-1]
    )


def _scored(one: ScoredWorker) -> list[str]:
    return [
        one.worker,
        f"{one.utility:.3f}",
        f"{one.throughput:.3f}",
        f"{one.cost:.3f}",
        f"{one.locality:.3f}",
        formatting.seconds(max(0.0, one.start_s)),
        formatting.seconds(max(0.0, one.finish_s)),
        formatting.usd(one.nanousd, estimated=True),
        "its engine was there" if one.has_instance else "an engine would start",
    ]


def _never_ran(step: StepStatus) -> str:
    if step.state == StepState.COMPLETED:
        return "it was not run: its results were reused; `fmesh why` shows from where"
    if step.state in ENDED:
        return "it was never placed; `fmesh why` shows why"
    return "it is not ready to be placed; `fmesh why` shows what it waits for"


def _row(candidate: Candidate, loading: Container[str]) -> list[str]:
    terms = candidate.terms
    engine = "its engine loads" if candidate.worker in loading else "its engine runs"
    return [
        candidate.worker,
        f"{terms.utility:.3f}",
        f"{terms.throughput:.3f}",
        f"{terms.cost:.3f}",
        f"{terms.locality:.3f}",
        formatting.seconds(max(0.0, terms.start_s)),
        formatting.seconds(max(0.0, terms.finish_s)),
        formatting.usd(terms.nanousd, estimated=True),
        engine if candidate.has_instance else "an engine would start",
    ]
