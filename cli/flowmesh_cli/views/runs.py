"""Renders runs: tables, outputs, failures, and the fabric account."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.runs import RunStatus, RunSummary
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.steps import MARKS, doing, result, state_word, title

LOG_LINES = 12
_HEADINGS = ["run", "uid", "phase", "steps", "ran", "hits", "paid", "saved", "created"]
_NUMBERS = "ran hits paid saved steps"
_OPTIONAL = "created ran hits saved steps paid"


def show_runs(terminal: Terminal, runs: Sequence[RunStatus]) -> None:
    """Writes a line per run."""
    rows = [
        [
            title(run),
            run.uid,
            run.phase,
            _steps_done(run.counts),
            str(run.executed),
            str(run.hits),
            formatting.usd(run.paid_nanousd),
            formatting.usd(run.saved_nanousd),
            formatting.date(run.created_s),
        ]
        for run in runs
    ]
    _show_table(terminal, rows)


def show_summaries(terminal: Terminal, runs: Sequence[RunSummary]) -> None:
    """Writes a line per run of the API's list."""
    rows = [
        [
            f"{run.namespace}/{run.name}",
            run.uid,
            run.phase,
            _steps_done(_summed(run)),
            str(run.executed),
            str(run.hits),
            formatting.usd(run.paid_nanousd),
            formatting.usd(run.saved_nanousd),
            formatting.date(run.created_s),
        ]
        for run in runs
    ]
    _show_table(terminal, rows)


def _show_table(terminal: Terminal, rows: list[list[str]]) -> None:
    """Writes lines of runs; the uid stays, which names a run in other commands."""
    terminal.table(
        _HEADINGS, rows, right=_NUMBERS, whole="uid", cut="run steps", optional=_OPTIONAL
    )


def show_run(
    terminal: Terminal, run: RunStatus, now_s: float, names: Mapping[str, str] | None = None
) -> None:
    """Writes a run with its steps, outputs and failure; ``names`` are titles of runs by uid."""
    took = formatting.seconds(max(0.0, (run.ended_s or now_s) - run.created_s))
    terminal.text(f"{title(run)} {run.uid}: {run.phase} after {took}")
    facts = [
        f"paid {formatting.usd(run.paid_nanousd)}",
        f"saved {formatting.usd(run.saved_nanousd)}",
    ]
    if run.budget_nanousd:
        facts.append(f"budget {formatting.usd(run.budget_nanousd)}")
    if run.deadline_s:
        facts.append(f"deadline {formatting.date(run.created_s + run.deadline_s)}")
    facts.append(formatting.joules(run.joules, estimated=run.joules_estimated))
    terminal.text("  " + ", ".join(facts))
    if run.phase == Phase.SUSPENDED and run.reason:  # not by its user
        terminal.text(f"  {run.message}")
        terminal.text(f"  try: {run.remedy}")
    rows = [
        [
            MARKS[StepState(step.state)] + " " + step.path,
            step.engine,
            state_word(step),
            "; ".join(part for part in (doing(step), result(step, names)) if part),
        ]
        for step in run.steps
    ]
    cut = [""] if run.phase == Phase.SUCCEEDED else []  # reasons are shown whole
    terminal.table(["step", "engine", "state", ""], rows, cut=cut, optional="engine")
    show_outputs(terminal, run)
    if run.phase == Phase.FAILED:
        show_failure(terminal, run)


def show_outputs(terminal: Terminal, run: RunStatus) -> None:
    """Writes a line per output; an unsuccessful run may lack some."""
    for name, output in run.outputs.items():
        if output is not None or run.phase == Phase.SUCCEEDED:
            terminal.text(f"  output {name}: {describe_output(output, run)}")


def show_metrics(terminal: Terminal, runs: Sequence[RunStatus]) -> None:
    """Writes the metrics of several runs side by side; nothing where fewer than two have any."""
    found = [
        (run, name, output["value"])
        for run in runs
        for name, output in run.outputs.items()
        if output and output.get("value")
    ]
    if len({run.uid for run, _, _ in found}) < 2:  # noqa: PLR2004 - one run has shown its own
        return
    columns = list(dict.fromkeys(key for _, _, value in found for key in value))
    rows = [
        [title(run), name, *(_number(value[key]) if key in value else "" for key in columns)]
        for run, name, value in found
    ]
    names = ["metrics of", "output"]
    terminal.table([*names, *columns], rows, right=columns, cut=names)


_WHY_NONE: dict[str, str] = {
    Phase.SUCCEEDED: "null (its step was skipped)",
    Phase.FAILED: "none (the run failed)",
    Phase.CANCELLED: "none (the run was cancelled)",
}
"""By the phase of a run that has ended, why it has no such output."""


def describe_output(output: dict[str, Any] | None, run: RunStatus) -> str:
    """Describes an output in a few words."""
    if output is None:
        return _WHY_NONE.get(run.phase, "none (its step has not completed)")
    if output.get("revoked"):
        return f"{output.get('kind', 'output')}, revoked"
    values = output.get("value")
    if values:
        return ", ".join(f"{key} {_number(value)}" for key, value in values.items())
    artifacts = output.get("parts") or [output]
    rows, size_bytes = (sum(a.get(key, 0) for a in artifacts) for key in ("rows", "bytes"))
    words = [str(output.get("kind", ""))]
    if rows:
        words.append(formatting.count(rows, "row"))
    if size_bytes:
        words.append(formatting.size(size_bytes))
    return ", ".join(words)


def show_failure(terminal: Terminal, run: RunStatus) -> None:
    """Writes where and why a run failed, the last lines of its log, and the remedy."""
    note = terminal.note
    where = f" in step {run.failed_step}" if run.failed_step else ""
    note("")
    note(f"{title(run)} {run.phase.lower()}{where}: {run.reason or 'no reason was given'}")
    for line in run.message.splitlines():
        note(f"  {line}")
    tail = [line for text in run.log for line in text.splitlines()][-LOG_LINES:]
    if tail:
        note("  last lines of the log:")
        for line in tail:
            note(f"    {line}")
    if run.remedy:
        note(f"  try: {run.remedy}")
    if run.failed_step:
        note(f"  more: fmesh logs {run.uid} --step {shlex.quote(run.failed_step)}")


def show_fabric(terminal: Terminal, fabric: FabricStatus | None) -> None:
    """Writes the fabric account and what sharing saved; nothing if the user may not see it."""
    if fabric is None:
        return
    hits = fabric.hits_published + fabric.hits_in_flight + fabric.hits_step_level
    terminal.text(
        f"fabric, all time: {formatting.count(fabric.executed, 'action')} executed, "
        f"{formatting.count(hits, 'hit')} ({fabric.hits_published} published, "
        f"{fabric.hits_in_flight} in flight, {fabric.hits_step_level} of whole steps), "
        f"sharing saved {formatting.usd(fabric.saved_nanousd)}"
    )
    services = ""
    if fabric.services_nanousd:
        services = f" + services {formatting.exact_usd(fabric.services_nanousd)}"
    terminal.text(
        f"  bill {formatting.exact_usd(fabric.bill_nanousd)} = receipts "
        f"{formatting.exact_usd(fabric.receipts_nanousd)}{services} + fabric "
        f"{formatting.exact_usd(fabric.fabric_nanousd)} + running "
        f"{formatting.exact_usd(fabric.unsettled_nanousd)}"
    )
    if fabric.trouble:
        terminal.note(trouble_line(fabric.trouble))
    for text in fabric.unreadable_runs:
        terminal.note(text)


def trouble_line(trouble: str) -> str:
    """Returns the line for the reason why the fabric makes no progress."""
    return f"the fabric waits for its store: {trouble}"


def _steps_done(counts: Mapping[str, int]) -> str:
    """Formats step counts as ``3/4, 1 failed``: completed of all, and how others ended."""
    total = sum(counts.values())
    if not total:
        return "-"
    others = (StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED)
    ended = [f"{counts[s]} {s.lower()}" for s in others if counts.get(s)]
    return ", ".join([f"{counts.get(StepState.COMPLETED, 0)}/{total}", *ended])


def _summed(run: RunSummary) -> dict[str, int]:
    ended: dict[str, int] = {
        StepState.COMPLETED: run.completed,
        StepState.FAILED: run.failed,
        StepState.SKIPPED: run.skipped,
        StepState.CANCELLED: run.cancelled,
    }
    return {**ended, StepState.PENDING: run.steps - sum(ended.values())}


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
