"""``fmesh logs``: what a run's engines print, now or kept from then."""

import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from flowmesh_api.v1.enums import ENDED_PHASES, StepState
from flowmesh_api.v1.runs import RunStatus, StepLogLine
from flowmesh_cli.attach import look
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.follow import POLL_S
from flowmesh_cli.verbs.why import find_step
from flowmesh_cli.views import formatting

_MOMENT_S = 0.05
"""Attempts that share an engine are given each of its lines within so many seconds."""
_NOTHING = re.compile(r"(\x1b\[[\d;]*m)*\(\w+ pid=\d+\)(\x1b\[[\d;]*m|\s)*")
"""A line of a vLLM process that has its prefix and no text."""


def show_logs(run: str, *, step: str, follow: bool, place: Target, as_json: bool) -> None:
    """Shows what engines printed; follows a run that goes on until it has ended."""
    terminal = Terminal(as_json=as_json)
    with look(place) as http:
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
    """The run's uid and the step's path; the path is empty where no step was named."""
    if not step:
        return find_run(http, run), ""
    uid, found = find_step(http, run, step)
    return uid, found.path


class LogPrinter:
    """Writes lines that it was not shown before; equal ones as often as there are.

    Text for people has a line of an engine once, also where several attempts of a step were in it,
    and no lines without text. JSON has every line of every attempt.
    """

    def __init__(self, terminal: Terminal, *, names_steps: bool) -> None:
        """Starts with nothing shown; ``names_steps`` writes each line's step before it."""
        self._terminal = terminal
        self._names_steps = names_steps
        self.shown: Counter[tuple[str, float, str]] = Counter()
        self._recent: defaultdict[tuple[str, str], list[_PrintedLine]] = defaultdict(list)

    def show(self, lines: list[StepLogLine]) -> None:
        """Writes those that are new, in their order."""
        told: Counter[tuple[str, float, str]] = Counter()
        for line in lines:
            key = (line.attempt_id, line.time_s, line.text)
            told[key] += 1
            if told[key] <= self.shown[key]:
                continue
            self.shown[key] += 1
            if self._terminal.as_json:
                self._terminal.line(line)
            elif not _NOTHING.fullmatch(line.text) and not self._is_copy(line):
                named = f"{line.step}: " if self._names_steps else ""
                self._terminal.text(f"{formatting.clock(line.time_s)} {named}{line.text}")

    def _is_copy(self, line: StepLogLine) -> bool:
        """Whether another attempt of the step gave the same line at the same moment."""
        key = (line.step, line.text)
        near = [p for p in self._recent[key] if abs(line.time_s - p.time_s) <= _MOMENT_S]
        same = next((p for p in near if line.attempt_id not in p.attempts), None)
        if same is None:
            near.append(_PrintedLine(line.time_s, {line.attempt_id}))
        else:
            same.attempts.add(line.attempt_id)
        self._recent[key] = near
        return same is not None


@dataclass(frozen=True, slots=True)
class _PrintedLine:
    """A line that was written, and the attempts that it was a line of."""

    time_s: float
    attempts: set[str]


def _nothing(status: RunStatus, path: str) -> str:
    """Why there is nothing to show: it has not started, was spared, or has not printed."""
    steps = [s for s in status.steps if path in ("", s.path)]
    who = f"step {path}" if path else status.uid
    if steps and all(s.state == StepState.COMPLETED and not s.executed for s in steps):
        return f"{who} was not run: its results were there already (fmesh why says whose)"
    if status.phase in ENDED_PHASES:
        return f"{who} printed nothing"
    if all(s.state in (StepState.PENDING, StepState.READY) for s in steps):
        return f"{who} has not started yet; -f waits for what it prints"
    return f"{who} has printed nothing yet; -f waits for it"
