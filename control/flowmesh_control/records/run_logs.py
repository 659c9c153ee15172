"""Stores the last log lines of each step of an ended run, in one record per run.

The finalizer writes it before ``final``; :class:`RunViews` reads it.
"""

from collections.abc import Iterable

import msgspec

from flowmesh_api.v1.enums import HitKind
from flowmesh_api.v1.runs import StepLogLine
from flowmesh_api.v1.why import HitLine
from flowmesh_control.records.keys import logs_key
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.protocol.messages import LogLine
from flowmesh_store.ports import RecordStore

STEP_LINES = 200
STEP_BYTES = 64 << 10
RUN_BYTES = 8 << 20
"""The most bytes of a run; with many steps that print, each has less than ``STEP_BYTES``."""
_LEAST_BYTES = 1 << 10

StepLines = dict[str, list[tuple[float, str]]]
"""Lines with their times, by attempt, of one step."""


class RunLogRecord(msgspec.Struct, frozen=True):
    """``runs/<uid>/logs``: the last lines of the steps that printed, by path."""

    steps: dict[str, StepLines]


log_decoder = msgspec.json.Decoder(RunLogRecord)


class RunLogArchive:
    """Writes and reads the log lines of ended runs; returns those of live runs too."""

    def __init__(self, records: RecordStore, book: LogBuffer) -> None:
        """Keeps the arguments.

        Args:
            records: has the lines of ended runs.
            book: buffers the lines of live attempts.
        """
        self._records = records
        self._book = book

    def live(self, run: Run, steps: Iterable[StepRun]) -> list[StepLogLine]:
        """Returns the lines of some steps of a live run, in order of time.

        Lines of actions whose results were cache hits are left out: they were printed for another
        run, which this run's users may not be allowed to read.
        """
        spared = _spared(run)
        found = [
            StepLogLine(line.attempt_id, line.time_s, line.text, s.plan.path)
            for s in steps
            for line in self._printed(s.plan.path, s, spared)
        ]
        return sorted(found, key=lambda line: line.time_s)

    async def keep(self, run: Run) -> None:
        """Writes the lines of a run that ends, if there are any.

        Raises:
            StoreUnavailableError, StoreFullError: try again.
        """
        if not self._book:
            return
        spared = _spared(run)
        lines = {path: self._printed(path, step, spared) for path, step in run.steps.items()}
        printed = {path: found for path, found in lines.items() if found}
        if not printed:
            return
        most = max(_LEAST_BYTES, min(STEP_BYTES, RUN_BYTES // len(printed)))
        steps = {path: _by_attempt(_last(found, most)) for path, found in printed.items()}
        data = msgspec.json.encode(RunLogRecord(steps))
        await overwrite(self._records, logs_key(run.uid), data)

    def _printed(self, path: str, step: StepRun, spared: set[tuple[str, int]]) -> list[LogLine]:
        keys = [p.key for n, p in step.parts.items() if p.key and (path, n) not in spared]
        return self._book.of_actions(f"{k.scope}/{k.action_id}" for k in keys)

    async def of(self, uid: str, step: str | None) -> list[StepLogLine]:
        """Returns the stored lines of an ended run, or of one of its steps, in order of time."""
        key = logs_key(uid)
        record = await self._records.read(key)
        if record is None:
            return []
        kept = decode_record(log_decoder, key, record).steps
        chosen = kept if step is None else {step: kept.get(step, {})}
        found = [
            StepLogLine(attempt, time_s, text, path)
            for path, attempts in chosen.items()
            for attempt, lines in attempts.items()
            for time_s, text in lines
        ]
        return sorted(found, key=lambda line: line.time_s)


def _spared(run: Run) -> set[tuple[str, int]]:
    """Returns the steps and chunks whose results were published before this run needed them."""
    return {
        (line.step, line.chunk)
        for line in run.lines
        if type(line) is HitLine and line.hit != HitKind.IN_FLIGHT
    }


def _last(lines: list[LogLine], most_bytes: int) -> list[LogLine]:
    """Returns the last lines that fit; if not even one does, the end of the last line."""
    kept: list[LogLine] = []
    room = most_bytes
    for line in reversed(lines[-STEP_LINES:]):
        size = len(line.text.encode()) + 1
        if size > room:
            if not kept:
                end = line.text.encode()[-room:].decode(errors="ignore")
                kept.append(msgspec.structs.replace(line, text=end))
            break
        room -= size
        kept.append(line)
    return kept[::-1]


def _by_attempt(lines: list[LogLine]) -> StepLines:
    found: StepLines = {}
    for line in lines:
        found.setdefault(line.attempt_id, []).append((line.time_s, line.text))
    return found
