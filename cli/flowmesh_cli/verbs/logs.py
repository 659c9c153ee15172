"""``fmesh logs``: shows what a run's engines print, live or from the stored logs."""

import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from flowmesh_api.v1.enums import ENDED_PHASES, StepState
from flowmesh_api.v1.runs import RunStatus, StepLogLine
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.follow import POLL_S
from flowmesh_cli.verbs.why import find_step
from flowmesh_cli.views import formatting

_MOMENT_S = 0.05
"""Seconds within which attempts that share an engine get each of its lines."""
_NOTHING = re.compile(r"(\x1b\[[\d;]*m)*\(\w+ pid=\d+\)(\x1b\[[\d;]*m|\s)*")
"""A line of a vLLM process with its prefix and no text."""


def show_logs(run: str, *, step: str, follow: bool, place: Target, as_json: bool) -> None:
    """Shows what a run's engines printed; with ``follow`` until the run ends."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        uid, path = _named(http, run, step)
        printer = LogPrinter(terminal, names_steps=not path)
        while True:
            status = http.get(f"/v1/runs/{uid}", RunStatus)
            printer.show(http.get(f"/v1/runs/{uid}/logs", list[StepLogLine], step=path))
            if not follow or status.phase in ENDED_PHASES:
                break
            time.sleep(POLL_S)
    if not printer.shown:
        terminal.note(_nothing(status, path))


def _named(http: ApiClient, run: str, step: str) -> tuple[str, str]:
    """Returns the run's uid and the step's path; the path is empty where no step was named."""
    if not step:
        return find_run(http, run), ""
    uid, found = find_step(http, run, step)
    return uid, found.path


class LogPrinter:
    """Writes the lines that are new since the last call; equal lines as often as they occur.

    Text has a line of an engine once, even where several attempts of a step shared the engine, and
    no empty lines. JSON has every line of every attempt.
    """

    def __init__(self, terminal: Terminal, *, names_steps: bool) -> None:
        """Starts empty; with ``names_steps`` each line is prefixed by its step."""
        self._terminal = terminal
        self._names_steps = names_steps
        self.shown: Counter[tuple[str, float, str]] = Counter()
        self._recent: defaultdict[tuple[str, str], list[_PrintedLine]] = defaultdict(list)

    def show(self, lines: list[StepLogLine]) -> None:
        """Writes the new lines, in order."""
        counted: Counter[tuple[str, float, str]] = Counter()
        for line in lines:
            key = (line.attempt_id, line.time_s, line.text)
            counted[key] += 1
            if counted[key] <= self.shown[key]:
                continue
            self.shown[key] += 1
            if self._terminal.as_json:
                self._terminal.line(line)
            elif not _NOTHING.fullmatch(line.text) and not self._is_copy(line):
                named = f"{line.step}: " if self._names_steps else ""
                self._terminal.text(f"{formatting.clock(line.time_s)} {named}{line.text}")

    def _is_copy(self, line: StepLogLine) -> bool:
        """Returns whether another attempt of the step had the same line at the same time."""
        key = (line.step, line.text)
        recent = [p for p in self._recent[key] if abs(line.time_s - p.time_s) <= _MOMENT_S]
        same = next((p for p in recent if line.attempt_id not in p.attempts), None)
        if same is None:
            recent.append(_PrintedLine(line.time_s, {line.attempt_id}))
        else:
            same.attempts.add(line.attempt_id)
        self._recent[key] = recent
        return same is not None


@dataclass(frozen=True, slots=True)
class _PrintedLine:
    """A written line, and the attempts that had it."""

    time_s: float
    attempts: set[str]


def _nothing(status: RunStatus, path: str) -> str:
    """Returns why there are no lines: not started, results reused, or nothing printed."""
    steps = [s for s in status.steps if path in ("", s.path)]
    subject = f"step {path}" if path else status.uid
    if steps and all(s.state == StepState.COMPLETED and not s.executed for s in steps):
        return f"{subject} was not run: its results were reused (fmesh why shows from where)"
    if status.phase in ENDED_PHASES:
        return f"{subject} printed nothing"
    if all(s.state in (StepState.PENDING, StepState.READY) for s in steps):
        return f"{subject} has not started yet; -f follows its output"
    return f"{subject} has printed nothing yet; -f follows its output"
