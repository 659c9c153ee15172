"""Progress that is redrawn on a terminal: a bar per step, and the fabric's state."""

from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_cli.views import formatting
from flowmesh_cli.views import steps as show
from flowmesh_cli.views.runs import trouble_line

MAX_STEPS = 24
"""Of a run with more steps, only running, ready and failed ones are shown."""
_REDRAWS_PER_S = 8
_BAR_COLUMNS = 24
_NAME_COLUMNS_MIN, _NAME_COLUMNS_MAX = 14, 36


class LiveProgress:
    """Redraws the state of runs until it is closed; the last state stays on the screen."""

    def __init__(self, console: Console) -> None:
        """Starts to draw on a console."""
        self._live = Live(
            Text("starting"), console=console, refresh_per_second=_REDRAWS_PER_S, transient=False
        )
        self._live.start()

    def update(self, runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> None:
        """Draws the state."""
        self._live.update(picture(runs, fabric, now_s))

    def note(self, text: str) -> None:
        """Writes a message above the progress."""
        self._live.console.print(text, markup=False)

    def close(self) -> None:
        """Stops drawing; may be called more than once."""
        self._live.stop()


def picture(runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> RenderableType:
    """Returns the runs, one below the other, and the fabric's line."""
    parts: list[RenderableType] = []
    names = show.titles_of(runs)
    for run in runs:
        parts += [_headline(run, now_s), _steps(run, names)]
    if fabric is not None:
        parts.append(_fabric_line(fabric))
        if fabric.trouble:
            parts.append(Text(trouble_line(fabric.trouble), "red"))
    return Group(*parts)


def _headline(run: RunStatus, now_s: float) -> Text:
    ended = run.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
    colour = {Phase.SUCCEEDED: "green", Phase.FAILED: "red"}.get(Phase(run.phase), "cyan")
    text = Text()
    text.append(show.title(run), "bold")
    text.append(f"  {run.phase}", colour)
    text.append(f"  {formatting.seconds(max(0.0, (run.ended_s or now_s) - run.created_s))}")
    text.append(f"  paid {formatting.usd(run.paid_nanousd)}")
    if run.saved_nanousd:
        text.append(f"  saved {formatting.usd(run.saved_nanousd)}", "green")
    if run.hits:
        text.append(f"  {formatting.count(run.hits, 'hit')}")
    if run.eta_s > 0 and not ended:
        text.append(f"  about {formatting.seconds(run.eta_s)} left", "dim")
    return text


def _steps(run: RunStatus, names: Mapping[str, str]) -> Table:
    shown, hidden = _chosen(run.steps)
    # Only the last column shrinks: the step's name and bar must fit first.
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=3, justify="right")
    longest = max((len(step.path) for step in shown), default=0)
    table.add_column(width=min(max(longest, _NAME_COLUMNS_MIN), _NAME_COLUMNS_MAX), no_wrap=True)
    table.add_column(width=_BAR_COLUMNS)
    table.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
    for step in shown:
        state = StepState(step.state)
        colour = show.COLOURS[state]
        table.add_row(
            Text(show.MARKS[state], colour),
            Text(step.path, colour if state is not StepState.COMPLETED else ""),
            _bar(step),
            Text(show.result(step, names) if state in show.ENDED else _moving(step), "dim"),
        )
    if hidden:
        table.add_row("", Text(f"and {formatting.count(hidden, 'step')} more", "dim"), "", "")
    return table


def _moving(step: StepStatus) -> str:
    if show.waits_for_worker(step):
        return "waits for a worker"
    return ", ".join(part for part in (show.amount(step), show.doing(step)) if part)


def _bar(step: StepStatus) -> RenderableType:
    if step.state == StepState.RUNNING and not step.done and not step.total_units:
        return ProgressBar(total=None, width=_BAR_COLUMNS)
    done = show.fraction(step)
    return ProgressBar(total=1.0, completed=done, width=_BAR_COLUMNS)


def _chosen(found: Sequence[StepStatus]) -> tuple[list[StepStatus], int]:
    if len(found) <= MAX_STEPS:
        return list(found), 0
    moving = [s for s in found if s.state in (StepState.RUNNING, StepState.READY, StepState.FAILED)]
    shown = moving[:MAX_STEPS]
    return shown, len(found) - len(shown)


def _fabric_line(fabric: FabricStatus) -> Text:
    parts = [
        formatting.count(fabric.workers, "worker"),
        f"{fabric.running_actions} running",
        f"{fabric.ready_actions} waiting",
    ]
    money = f"bill {formatting.usd(fabric.bill_nanousd)}"
    if fabric.saved_nanousd:
        money += f", sharing saved {formatting.usd(fabric.saved_nanousd)}"
    return Text(f"fabric: {', '.join(parts)}; all time: {money}", "dim")
