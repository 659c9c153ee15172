"""Status, logs, receipts and outputs of runs, live or ended; called by API, audits and operator.

A verdict is shown only once it is durable: until then the run is shown as running.
"""

from collections.abc import Mapping, Sequence

import msgspec

from flowmesh_api.v1.charges import Charge
from flowmesh_api.v1.enums import ENDED_PHASES, Phase
from flowmesh_api.v1.receipts import Receipt
from flowmesh_api.v1.runs import RunStatus, RunSummary, StepLogLine
from flowmesh_control.errors import NewerPlanError, NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.ledger import LedgerWriter, read_segments
from flowmesh_control.records.output_references import current_status
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.records.run_pins import accepted_pins
from flowmesh_control.records.run_records import (
    FinalRecord,
    decode_record,
    spec_decoder,
    summary_of,
    summary_of_live,
)
from flowmesh_core.accounting.charges import Days, Payer, charges
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.accounting.receipt import receipt
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.graph.plan import Plan, UtilityWeights
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.published_parts import PublishedPart, partial_outputs, whole_output
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.status.projection import run_status
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore


class RunViews:
    """Answers queries about runs."""

    def __init__(
        self,
        *,
        state: State,
        records: RecordStore,
        ledger: LedgerWriter,
        archive: Archive,
        waiting: Mapping[str, RunStatus],
        logs: RunLogArchive,
        references: ReferenceIssuer,
        clock: Clock,
    ) -> None:
        """Keeps where runs are read from.

        Args:
            state: the machine's: live runs.
            records: of the store.
            ledger: lines of live runs, also those that are not written yet.
            archive: ended runs.
            waiting: runs that cannot continue with the versions that they are pinned to.
            logs: lines that attempts printed.
            references: issues those to outputs.
            clock: Unix time in seconds.
        """
        self._state = state
        self._records = records
        self._ledger = ledger
        self._archive = archive
        self._waiting = waiting
        self._logs = logs
        self._references = references
        self._clock = clock

    async def runs_named(
        self, name: str, summaries: Sequence[RunSummary] | None = None
    ) -> list[tuple[str, str]]:
        """Returns uid and namespace of the runs that a name may mean, the likeliest first.

        An exact uid means only its run. Otherwise runs of that name come first, then runs whose uid
        begins with it; within each, the latest first.

        Args:
            name: as a user wrote it.
            summaries: of all runs, where the caller asks for several names.
        """
        run = self._state.runs.get(name)
        if run is not None:
            return [(name, run.plan.namespace)]
        if name in self._waiting:
            return [(name, self._waiting[name].namespace)]
        namespace = self._archive.namespace(name)
        if namespace is not None:
            return [(name, namespace)]
        known = sorted(summaries or self.summaries(), key=lambda s: s.created_s, reverse=True)
        called = [s for s in known if s.name == name]
        called += [s for s in known if s.uid.startswith(name) and s.name != name]
        if called:
            return [(s.uid, s.namespace) for s in called]
        return [] if "/" in name else await self._long_ended(name)

    async def _long_ended(self, uid: str) -> list[tuple[str, str]]:
        """Returns uid and namespace of an ended run that the archive no longer has in memory."""
        try:
            final = await self._archive.get(uid)
        except DamagedRecordError:
            record = await self._records.read(spec_key(uid))
            if record is None:
                return []
            spec = decode_record(spec_decoder, spec_key(uid), record)
            return [(uid, spec.namespace)]
        return [] if final is None else [(uid, final.status.namespace)]

    async def status(self, uid: str) -> RunStatus:
        """Returns a run's status.

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
        return current_status(final, self._references)

    def has_ended(self, uid: str) -> bool:
        """Whether the archive has the durable end of a run."""
        return uid in self._archive

    async def outputs(self, uid: str) -> dict[str, tuple[Artifact, ...]]:
        """Returns the outputs of a run that has ended.

        Raises:
            NotFoundError: there is no such run, or it has not ended.
        """
        return (await self._final(uid)).outputs

    async def partial_outputs(self, uid: str) -> dict[str, tuple[PublishedPart, ...]]:
        """Returns what is published of the outputs of a run, whether it has ended or not.

        Raises:
            NotFoundError: there is no such run, or it waits for an engine.
        """
        run = self._state.runs.get(uid)
        if run is not None and not self.has_ended(uid):
            return partial_outputs(run)
        final = await self._final(uid)
        whole = {name: whole_output(artifacts) for name, artifacts in final.outputs.items()}
        return {**whole, **final.partial}

    def inline(self, uid: str) -> Mapping[Digest, bytes]:
        """Returns small blobs of a live run that are not stored yet; empty for any other run."""
        run = self._state.runs.get(uid)
        return {} if run is None else run.inline

    async def output_scopes(self, uid: str) -> tuple[str, ...]:
        """Returns the scopes that have the outputs of a run, whether it has ended or not.

        Raises:
            NotFoundError: there is no such run, or it waits for an engine.
        """
        run = self._state.runs.get(uid)
        if run is not None and not self.has_ended(uid):
            return run.scopes.readable
        return (await self._final(uid)).read_scopes

    async def _final(self, uid: str) -> FinalRecord:
        final = await self._archive.get(uid)
        if final is None:
            raise NotFoundError(
                f"run {uid!r} has not ended", where="outputs", remedy=f"`fmesh watch {uid}`"
            )
        return final

    async def lines(self, uid: str) -> tuple[Line, ...]:
        """Returns a run's ledger; of a live run also the lines that are not written yet."""
        live = self._ledger.lines(uid)
        if live is not None:
            return tuple(live)
        return (await read_segments(self._records, uid)).lines

    async def plan(self, uid: str) -> Plan | None:
        """The plan of a run that has ended, as it was accepted; None where it is unreadable."""
        try:
            pins = await accepted_pins(self._records, uid)
        except (DamagedRecordError, NewerPlanError):
            return None
        return None if pins is None else pins.plan

    async def weights(self, uid: str) -> UtilityWeights | None:
        """The weights of placement of a run that has ended; None where its plan is unreadable."""
        plan = await self.plan(uid)
        return None if plan is None else plan.weights

    async def receipt(self, uid: str) -> Receipt:
        """Returns what a run has paid so far, or in total once it has ended.

        Raises:
            NotFoundError: there is no such run.
        """
        status = await self.status(uid)
        lines = await self.lines(uid)
        return receipt(uid, status.name, status.namespace, lines, audit_of=status.audit_of)

    async def charges(self, uid: str, days: Days) -> list[Charge]:
        """Returns what a run has paid on some days, by step.

        Raises:
            NotFoundError: there is no such run.
            DamagedRecordError: a record of it cannot be read.
        """
        record = await self._records.read(spec_key(uid))
        if record is None:
            raise NotFoundError(f"there is no run {uid!r}", where="runs")
        spec = decode_record(spec_decoder, spec_key(uid), record)
        labels = spec.document.get("metadata", {}).get("labels") or {}
        payer = Payer(uid, spec.name, spec.namespace, labels)
        return charges(payer, await self.lines(uid), days)

    async def logs(self, uid: str, step: str | None) -> list[StepLogLine]:
        """Returns the last lines that the attempts of a run, or of one step, printed.

        Raises:
            NotFoundError: there is no such run or step.
        """
        run = self._state.runs.get(uid)
        if run is not None:
            return self._logs.live(run, run.steps.values() if step is None else _step(run, step))
        status = await self.status(uid)
        if step is not None and status.steps and all(s.path != step for s in status.steps):
            raise no_step(uid, step, [s.path for s in status.steps])
        lines = await self._logs.of(uid, step)
        if lines or step not in (None, status.failed_step):
            return lines
        return [StepLogLine("", status.ended_s, t, status.failed_step) for t in status.log]

    def summaries(self, namespace: str | None = None) -> list[RunSummary]:
        """Returns all runs, of a namespace if one is given, in order of creation."""
        runs = self._state.runs
        found = [
            *self._archive.summaries(),
            *(summary_of(s) for s in self._waiting.values()),
            *(summary_of_live(runs[uid]) for uid in runs if uid not in self._archive),
        ]
        chosen = [s for s in found if namespace in (None, s.namespace)]
        return sorted(chosen, key=lambda s: s.created_s)

    def _live(self, uid: str) -> RunStatus:
        return _without_pending_verdict(run_status(self._state, uid, self._clock()))


def _without_pending_verdict(status: RunStatus) -> RunStatus:
    """Shows a run whose verdict is not durable yet as still running."""
    if status.phase not in ENDED_PHASES:
        return status
    return msgspec.structs.replace(status, phase=Phase.RUNNING, ended_s=0.0)


def _step(run: Run, path: str) -> list[StepRun]:
    step = run.steps.get(path)
    if step is None:
        raise no_step(run.uid, path, list(run.steps))
    return [step]


def no_step(uid: str, path: str, known: list[str]) -> NotFoundError:
    """Returns the error for a step that a run does not have; it lists those that it has."""
    remedy = f"it has {', '.join(known[:20])}"
    return NotFoundError(f"no step {path!r}", where=f"run {uid}", remedy=remedy)
