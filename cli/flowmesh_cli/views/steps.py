"""Renders a step in one line: its progress, result, and what it waits for."""

from collections import Counter
from collections.abc import Mapping, Sequence

from flowmesh_api.v1.enums import RejectionCause, StepState
from flowmesh_api.v1.runs import RunStatus, RunSummary, StepStatus
from flowmesh_cli.views import formatting
from flowmesh_core.errors import FailureKind

MARKS = {
    StepState.PENDING: "·",
    StepState.READY: "◌",
    StepState.RUNNING: "●",
    StepState.COMPLETED: "✔",
    StepState.SKIPPED: "-",
    StepState.FAILED: "✘",
    StepState.CANCELLED: "■",
}
COLOURS = {
    StepState.PENDING: "dim",
    StepState.READY: "yellow",
    StepState.RUNNING: "cyan",
    StepState.COMPLETED: "green",
    StepState.SKIPPED: "dim",
    StepState.FAILED: "red",
    StepState.CANCELLED: "magenta",
}
_BEFORE_RUNNING = {
    "fetching": "fetching inputs",
    "loading": "loading the engine",
    "queued": "queued in the engine",
}
_STARTING = ("", *_BEFORE_RUNNING)
"""What attempts do before they begin; empty before their worker has reported."""
_MESSAGE_COLUMNS = 120
_EXPLAINED = (
    StepState.PENDING,
    StepState.READY,
    StepState.SKIPPED,
    StepState.FAILED,
    StepState.CANCELLED,
)
"""States whose reason is shown."""
ENDED = (StepState.COMPLETED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED)


def title(run: RunStatus) -> str:
    """Returns a run's tenant and name."""
    return f"{run.namespace}/{run.name}"


def titles_of(runs: Sequence[RunSummary | RunStatus]) -> dict[str, str]:
    """Returns tenant and name by uid, with the uid where several runs have one name."""
    titles = [f"{run.namespace}/{run.name}" for run in runs]
    counts = Counter(titles)
    return {
        run.uid: title if counts[title] == 1 else f"{title} ({run.uid})"
        for run, title in zip(runs, titles, strict=True)
    }


def fraction(step: StepStatus) -> float:
    """Returns how much of a step is done, in [0, 1], with the progress of running actions."""
    if step.state == StepState.COMPLETED:
        return 1.0
    if not step.actions:
        return 0.0
    inside = step.done_units / step.total_units if step.total_units else 0.0
    return min(1.0, (step.done + inside * min(1, step.actions - step.done)) / step.actions)


def amount(step: StepStatus) -> str:
    """Formats done chunks and reused results: ``12/20, 4 hits``."""
    parts = []
    if step.actions > 1:
        parts.append(f"{step.done}/{step.actions}")
    if step.hits:
        whole = step.hits == step.actions
        parts.append("hit" if whole and step.hits == 1 else formatting.count(step.hits, "hit"))
    if step.in_flight:
        parts.append(f"{step.in_flight} shared in flight")
    return ", ".join(parts)


def waits_for_worker(step: StepStatus) -> bool:
    """Returns whether a step waits only because no worker is connected yet."""
    return step.state == StepState.READY and step.reason == RejectionCause.NO_WORKERS


def is_starting(step: StepStatus) -> bool:
    """Returns whether a step has attempts and none has begun, as while an engine loads."""
    is_first = step.state == StepState.RUNNING and not (step.done or step.done_units)
    return is_first and bool(step.workers) and step.doing in _STARTING


def state_word(step: StepStatus) -> str:
    """Returns a step's state in a word: ``starting``, or its state in small letters."""
    return "starting" if is_starting(step) else step.state.lower()


def doing(step: StepStatus) -> str:
    """Describes what a step does or waits for."""
    if step.state == StepState.RUNNING and step.reason == FailureKind.STORE:
        return step.message  # it has run, and the store has no space for its result
    if step.state == StepState.RUNNING:
        where = ", ".join(step.workers)
        speed = f"{step.tokens_per_s:.0f} tok/s" if step.tokens_per_s else ""
        units = _units(step)
        waits = step.message if not where and step.message else ""
        doing = "" if step.done_units else _BEFORE_RUNNING.get(step.doing, "")
        parts = (speed, units, doing, f"on {where}" if where else waits)
        return " ".join(part for part in parts if part)
    if step.state in _EXPLAINED:
        first = step.message.splitlines()[0] if step.message else ""
        short = first if len(first) <= _MESSAGE_COLUMNS else first[: _MESSAGE_COLUMNS - 1] + "…"
        return short or ("" if step.reason == step.state.lower() else step.reason)
    return ""


def result(step: StepStatus, names: Mapping[str, str] | None = None) -> str:
    """Describes an ended step's result: what ran, what was paid, what sharing saved.

    Args:
        step: the step.
        names: titles of runs by uid; other runs are shown by uid.
    """
    parts = []
    if step.executed:
        parts.append(f"{step.executed} ran")
    if amount(step):
        parts.append(amount(step))
    if step.tokens:
        parts.append(formatting.count(step.tokens, "token"))
    if step.paid_nanousd:
        parts.append(f"paid {formatting.usd(step.paid_nanousd)}")
    if step.saved_nanousd:
        parts.append(f"saved {formatting.usd(step.saved_nanousd)}")
    if step.shared_with:
        others = ((names or {}).get(uid, uid) for uid in step.shared_with)
        parts.append(f"shared with {', '.join(others)}")
    return ", ".join(parts)


def _units(step: StepStatus) -> str:
    if not step.done_units:
        return ""
    total = f"/{step.total_units:g}" if step.total_units else ""
    return f"{step.done_units:g}{total} {step.unit}".rstrip()
