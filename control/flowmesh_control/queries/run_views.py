"""What is shown of runs, live or ended: verdicts only once they are durable."""

from collections.abc import Mapping

import msgspec

from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.runs import RunStatus, RunSummary, StepLogLine
from flowmesh_control.errors import NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.ledger import LedgerWriter, read_segments
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.records.run_pins import accepted_pins
from flowmesh_control.records.run_records import decode_record, spec_decoder, summary_of
from flowmesh_control.runs.former_references import renewed_final
from flowmesh_core.accounting.ledger_lines import HitLine, Line
from flowmesh_core.accounting.receipt import receipt
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.status.projection import run_status
from flowmesh_store.ports import RecordStore


class RunViews:
    """Answers questions about runs."""

    def __init__(
        self,
        *,
        state: State,
        records: RecordStore,
        ledger: LedgerWriter,
        archive: Archive,
        waiting: Mapping[str, RunStatus],
        logs: RunLogArchive,
        master_key: bytes,
        clock: Clock,
    ) -> None:
        """Takes the live state, what is kept of ended runs, and those that wait for an engine."""
        self._state = state
        self._records = records
        self._ledger = ledger
        self._archive = archive
        self._waiting = waiting
        self._logs = logs
        self._master_key = master_key
        self._clock = clock

    async def called(self, name: str) -> list[tuple[str, str]]:
        """Uid and namespace of the runs that a name may mean, the likeliest first.

        A uid means its run alone. Else all that are called so come first, then all whose uid
        begins so, the latest of each before the others.
        """
        run = self._state.runs.get(name)
        if run is not None:
            return [(name, run.plan.namespace)]
        if name in self._waiting:
            return [(name, self._waiting[name].namespace)]
        namespace = self._archive.namespace(name)
        if namespace is not None:
            return [(name, namespace)]
        known = sorted(self.summaries(), key=lambda s: s.created_s, reverse=True)
        called = [s for s in known if s.name == name]
        called += [s for s in known if s.uid.startswith(name) and s.name != name]
        if called:
            return [(s.uid, s.namespace) for s in called]
        return [] if "/" in name else await self._long_ended(name)

    async def _long_ended(self, uid: str) -> list[tuple[str, str]]:
        """Uid and namespace of a run that ended so long ago that no line of it is at hand."""
        try:
            final = await self._archive.get(uid)
        except DamagedRecordError:
            record = await self._records.read(spec_key(uid))
            if record is None:
                return []
            spec = decode_record(spec_decoder, spec_key(uid), record.data)
            return [(uid, spec.namespace)]
        return [] if final is None else [(uid, final.status.namespace)]

    async def status(self, uid: str) -> RunStatus:
        """A run as it is shown; ended only once its end is durable.

        Raises:
            NotFoundError: there is no such run.
            DamagedRecordError: a record of it cannot be read.
        """
        if uid in self._state.runs and not self.has_ended(uid):
            return self._live(uid)
        waiting = self._waiting.get(uid)
        if waiting is not None:
            return waiting
        final = await self._archive.get(uid)
        if final is None:
            raise NotFoundError(f"there is no run {uid!r}", where="runs")
        return (await renewed_final(final, self._records, self._master_key)).status

    def live(self, uid: str) -> Run:
        """A run under way.

        Raises:
            NotFoundError: it is not, or not any more.
        """
        run = self._state.runs.get(uid)
        if run is None:
            raise NotFoundError(f"run {uid!r} is not under way", where="runs")
        return run

    def has_ended(self, uid: str) -> bool:
        """Returns whether a run of late has ended and its end is durable."""
        return uid in self._archive

    async def outputs(self, uid: str) -> dict[str, tuple[Artifact, ...]]:
        """The outputs of a run that has ended.

        Raises:
            NotFoundError: there is no such run, or it has not ended.
        """
        final = await self._archive.get(uid)
        if final is None:
            raise NotFoundError(
                f"run {uid!r} has not ended", where="outputs", remedy="watch it until it has"
            )
        return final.outputs

    async def lines(self, uid: str) -> tuple[Line, ...]:
        """A run's ledger, of a live run with what is not written yet."""
        live = self._ledger.lines(uid)
        if live is not None:
            return tuple(live)
        return (await read_segments(self._records, uid)).lines

    async def weights(self, uid: str) -> UtilityWeights | None:
        """The weights of placement of a run that has ended; None where its plan is unreadable."""
        try:
            pins = await accepted_pins(self._records, uid)
        except DamagedRecordError:
            return None
        return None if pins is None else pins.plan.weights

    async def receipt(self, uid: str) -> Receipt:
        """What a run has paid so far, or in the end.

        Raises:
            NotFoundError: there is no such run.
        """
        status = await self.status(uid)
        lines = await self.lines(uid)
        return receipt(uid, status.name, status.namespace, lines, audit_of=status.audit_of)

    async def logs(self, uid: str, step: str | None) -> list[StepLogLine]:
        """What the attempts of a run, or of one of its steps, printed last.

        Raises:
            NotFoundError: there is no such run or step.
        """
        run = self._state.runs.get(uid)
        if run is not None:
            return self._logs.live(run, run.steps.values() if step is None else _step(run, step))
        status = await self.status(uid)
        if step is not None and status.steps and all(s.path != step for s in status.steps):
            raise _no_step(uid, step, [s.path for s in status.steps])
        kept = await self._logs.of(uid, step)
        if kept or step not in (None, status.failed_step):
            return kept
        return [StepLogLine("", status.ended_s, t, status.failed_step) for t in status.log]

    async def hits(self, uid: str, step: str) -> list[HitLine]:
        """What a step did not have to run, and why."""
        lines = await self.lines(uid)
        return [line for line in lines if isinstance(line, HitLine) and line.step == step]

    def summaries(self, namespace: str | None = None) -> list[RunSummary]:
        """All runs in order of creation: ended ones first, then waiting, then live."""
        now_s = self._clock()
        live = [
            _held_back(run_status(self._state, uid, now_s))
            for uid in self._state.runs
            if uid not in self._archive
        ]
        found = [
            *self._archive.summaries(),
            *(summary_of(s) for s in [*self._waiting.values(), *live]),
        ]
        chosen = [s for s in found if namespace in (None, s.namespace)]
        return sorted(chosen, key=lambda s: s.created_s)

    def _live(self, uid: str) -> RunStatus:
        return _held_back(run_status(self._state, uid, self._clock()))


def _held_back(status: RunStatus) -> RunStatus:
    """A run whose verdict is not durable yet is still running, for whoever looks."""
    if status.phase not in ENDED_PHASES:
        return status
    return msgspec.structs.replace(status, phase=Phase.RUNNING, ended_s=0.0)


def _step(run: Run, path: str) -> list[StepRun]:
    step = run.steps.get(path)
    if step is None:
        raise _no_step(run.uid, path, list(run.steps))
    return [step]


def _no_step(uid: str, path: str, known: list[str]) -> NotFoundError:
    return NotFoundError(
        f"run {uid} has no step {path!r}", where="step", remedy=f"it has {', '.join(known[:20])}"
    )
