"""Makes a run's end durable, in this order: ledger, lineage, logs, ``final``.

Only then the end is shown. Called by the command executor when the machine ends a run.
"""

import msgspec

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.loop.clock import Clock
from flowmesh_control.ports import RunSampling
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_control.records.ended_index import EndedRunIndex
from flowmesh_control.records.epochs import check_leads
from flowmesh_control.records.keys import final_key
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.output_references import with_references
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.reference_issuer import ReferenceIssuer
from flowmesh_control.records.revocations import Revocations
from flowmesh_control.records.run_logs import RunLogArchive
from flowmesh_control.records.run_records import FinalRecord
from flowmesh_control.records.run_redaction import RunRedaction
from flowmesh_core.errors import FailureKind, StoreFullError, StoreUnavailableError
from flowmesh_core.lineage import derivations
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.published_parts import partial_outputs
from flowmesh_core.machine.state import State
from flowmesh_core.machine.steps import source_artifact
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.status.projection import run_status
from flowmesh_store.ports import RecordStore


class RunFinalizer:
    """Implements :class:`Finisher` on the store."""

    def __init__(
        self,
        *,
        records: RecordStore,
        state: State,
        ledger: LedgerWriter,
        lineage: LineageIndex,
        audits: AuditRecords,
        samples: RunSampling,
        logs: RunLogArchive,
        archive: Archive,
        index: EndedRunIndex,
        references: ReferenceIssuer,
        revocations: Revocations,
        redaction: RunRedaction,
        clock: Clock,
    ) -> None:
        self._records = records
        self._state = state
        self._ledger = ledger
        self._lineage = lineage
        self._audits = audits
        self._samples = samples
        self._logs = logs
        self._archive = archive
        self._index = index
        self._references = references
        self._revocations = revocations
        self._redaction = redaction
        self._clock = clock

    async def finish(self, uid: str) -> None:
        """As :meth:`Finisher.finish`; a full store counts as unavailable, so it is retried."""
        run = self._state.runs.get(uid)
        if run is None:
            return
        try:
            await self._ledger.flush(uid)
            lines = self._ledger.lines(uid) or ()
            if not run.plan.audit_of:  # an audit produces nothing new
                found = derivations(uid, run.plan, run.artifacts, lines, run.steps)
                await self._lineage.write(uid, found)
            await check_leads(self._records, self._state.epoch)
            if run.plan.audit_of:
                await self._audits.conclude(run)
                await self._samples.concluded(run)
            else:
                await self._samples.draw(run)
            await self._logs.keep(run)
            final = self._final(run)
            if run.failure is not None and run.failure.kind is FailureKind.REVOKED:
                final = await self._redaction.redact_end(final, self._revocations.events())
            await self._write(uid, final)
        except StoreFullError as e:
            raise StoreUnavailableError(e.message, where=e.where, remedy=e.remedy) from e
        self._ended(final)

    async def close(self, status: RunStatus) -> None:
        """Ends a run that is not in the machine, because it waits for its engines.

        Raises:
            StoreUnavailableError, StoreFullError: it has not ended; try again.
        """
        final = FinalRecord(self._state.epoch, status)
        await self._ledger.flush(status.uid)
        await check_leads(self._records, self._state.epoch)
        await self._write(status.uid, final)
        self._ended(final)

    def _ended(self, final: FinalRecord) -> None:
        """Records that the end is durable.

        There is no await in between, so that the accounts are captured with all of this or none.
        """
        self._archive.add(final)
        self._index.add(final)
        self._ledger.close(final.status.uid)

    async def _write(self, uid: str, final: FinalRecord) -> None:
        """Writes ``final``, replacing one that an earlier leader wrote after losing leadership."""
        await overwrite(self._records, final_key(uid), msgspec.json.encode(final))

    def _final(self, run: Run) -> FinalRecord:
        status = run_status(self._state, run.uid, self._clock())
        outputs = outputs_of(run)
        if run.phase is Phase.SUCCEEDED:
            status = with_references(status, outputs, self._references, run.scopes.publish)
        scopes = run.scopes
        return FinalRecord(
            self._state.epoch,
            status,
            outputs,
            scopes.publish,
            scopes.readable,
            {} if run.phase is Phase.SUCCEEDED else partial_outputs(run),
        )


def outputs_of(run: Run) -> dict[str, tuple[Artifact, ...]]:
    """Returns the artifacts of each output, in order; none where its step was skipped."""
    found = {}
    for name, sources in run.plan.outputs.items():
        given = (source_artifact(run, s) for s in sources)
        found[name] = tuple(a for a in given if a is not None)
    return found
