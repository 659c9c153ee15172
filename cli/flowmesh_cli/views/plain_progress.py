"""Progress as plain lines, for logs and pipes: one per change of a step, few in between."""

from collections.abc import Callable, Mapping, Sequence

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_cli.views import formatting
from flowmesh_cli.views import steps as show
from flowmesh_cli.views.runs import trouble_line

EVERY_S = 10.0
"""Seconds between lines about a step that keeps running or waiting."""
SHORT_S = 1.0
"""A start that takes no longer than this has no line."""


class LineProgress:
    """Writes what has changed since the last update."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._phases: dict[str, str] = {}
        self._states: dict[tuple[str, str], str] = {}
        self._started_s: dict[tuple[str, str], float] = {}
        self._written_s: dict[tuple[str, str], float] = {}
        self._trouble = ""

    def update(self, runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> None:
        """Writes the changes to this state."""
        self._write_trouble(fabric)
        names = show.titles_of(runs)
        for run in runs:
            changed = self._phases.get(run.uid) != run.phase
            self._phases[run.uid] = run.phase
            line = f"{formatting.clock(now_s)} {show.title(run)} {run.phase} ({run.uid})"
            if changed and not run.ended_s:
                self._write(line)
            for step in run.steps:
                self._step(run, step, now_s, names)
            if changed and run.ended_s:
                self._write(line)

    def _write_trouble(self, fabric: FabricStatus | None) -> None:
        trouble = fabric.trouble if fabric is not None else ""
        if trouble and trouble != self._trouble:
            self._write(trouble_line(trouble))
        self._trouble = trouble

    def note(self, text: str) -> None:
        """Writes a message."""
        self._write(text)

    def close(self) -> None:
        """Does nothing."""

    def _step(
        self, run: RunStatus, step: StepStatus, now_s: float, names: Mapping[str, str]
    ) -> None:
        key = (run.uid, step.path)
        word = show.state_word(step)
        changed = self._states.get(key) != word
        moving = step.state in (StepState.READY, StepState.RUNNING)
        if changed and show.is_starting(step):
            started_s = self._started_s.setdefault(key, now_s)
            if now_s - started_s < SHORT_S:
                return
        if changed:
            self._states[key] = word
            self._written_s[key] = now_s
            if step.state == StepState.PENDING:
                return
            if step.state == StepState.READY and not (step.message or step.reason):
                return
            if show.waits_for_worker(step):
                return  # workers take a second to start: written only if the wait is longer
        elif moving and now_s - self._written_s.get(key, now_s) >= EVERY_S:
            self._written_s[key] = now_s
        else:
            return
        self._write(f"{formatting.clock(now_s)} {show.title(run)} {step.path} {_line(step, names)}")


def _line(step: StepStatus, names: Mapping[str, str]) -> str:
    state = show.state_word(step)
    if step.state in show.ENDED:
        detail = ", ".join(p for p in (show.doing(step), show.result(step, names)) if p)
    else:
        detail = ", ".join(p for p in (show.amount(step), show.doing(step)) if p)
    return f"{state}: {detail}" if detail else state
