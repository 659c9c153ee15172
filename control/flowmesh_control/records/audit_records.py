"""How audits end: what was made again is compared, and what differs is quarantined.

Called while an audit's run is being finished, before its ``final`` is written: a control plane that
ends in between finds the run unfinished, and the next one compares again.
"""

import logging
from collections import Counter

import msgspec

from flowmesh_api.v1.audit import AuditFinding, AuditOrder, AuditReport, QuarantineEntry
from flowmesh_api.v1.enums import Phase
from flowmesh_control.errors import NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.keys import audit_key, spec_key
from flowmesh_control.records.overwrite import put_last
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.audit.report import counts_of, findings_of
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.machine.model import Run
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

ORDER = "order"
"""Where in an audit's spec document its order stands."""


class _Document(msgspec.Struct, frozen=True):
    """The document of a spec as far as it says what an audit is to check."""

    order: AuditOrder | None = None


class _Spec(msgspec.Struct, frozen=True):
    """The spec of a run as far as it says what an audit is to check."""

    document: _Document

    @property
    def order(self) -> AuditOrder | None:
        """What is to be checked; None where the run is not an audit."""
        return self.document.order


_decoder = msgspec.json.Decoder(AuditReport)
_spec_decoder = msgspec.json.Decoder(_Spec)


class AuditRecords:
    """The audits of a fabric, their reports, and what they found in all.

    Attributes:
        counts: audited actions by verdict, of all audits that ended.
    """

    def __init__(self, records: RecordStore, quarantine: Quarantine, clock: Clock) -> None:
        """Takes where reports stand, and what keeps look-ups from what did not repeat."""
        self._records = records
        self._clock = clock
        self.quarantine = quarantine
        self.counts: Counter[str] = Counter()

    async def load(self, archive: Archive) -> None:
        """Counts what earlier control planes found; what cannot be read is left out."""
        for run in archive.summaries():
            if not run.audit_of:
                continue
            try:
                report = await self._report(run.uid)
            except DamagedRecordError as e:
                log.warning("what audit %s found is not counted: %s", run.uid, e)
                continue
            if report is not None:
                self.counts.update(report.counts)

    async def conclude(self, run: Run) -> None:
        """Compares, quarantines and writes the report; again is harmless.

        Where a record that it needs is damaged the report says so instead.

        Raises:
            StoreUnavailableError, StoreFullError: call it again.
        """
        try:
            if await self._report(run.uid) is not None:
                return
        except DamagedRecordError as e:  # of a leader that ended before the run's final record
            log.warning("%s; it is written again", e)
        report = await self._compared(run)
        await put_last(self._records, audit_key(run.uid), msgspec.json.encode(report))
        self.counts.update(report.counts)

    async def _compared(self, run: Run) -> AuditReport:
        order, cut_off = await self._readable_order(run)
        findings = findings_of(order, run)
        quarantined: dict[str, None] = {}
        for finding in findings:
            try:
                if finding.quarantines and await self._quarantine(run, order, finding):
                    quarantined[finding.check.signature_class] = None
            except DamagedRecordError as e:
                log.warning("audit %s quarantines nothing of it: %s", run.uid, e)
                cut_off = f"a signature class could not be put into quarantine: {e}"
        return AuditReport(
            uid=run.uid,
            order=order,
            phase=run.phase,
            findings=findings,
            counts=counts_of(order, findings),
            quarantined=tuple(quarantined),
            paid_nanousd=run.paid_nanousd,
            ended_s=self._clock(),
            cut_off=cut_off or run.cancel_reason,
        )

    async def _readable_order(self, run: Run) -> tuple[AuditOrder, str]:
        """What was asked for; where it cannot be read, an order of nothing, and why."""
        key = spec_key(run.uid)
        try:
            order = await self._order(run.uid)
        except DamagedRecordError as e:
            order, reason = None, e.reason
        else:
            reason = f"{key} does not say what to compare"
        if order is not None and any(check.path not in run.steps for check in order.checks):
            order, reason = None, f"{key} names steps that the audit does not have"
        if order is None:
            log.warning("audit %s compares nothing: %s", run.uid, reason)
            return _order_of_nothing(run), f"nothing could be compared: {reason}"
        return order, ""

    async def report(self, uid: str) -> AuditReport:
        """What an audit found, or, while it goes on, what it set out to check.

        Raises:
            NotFoundError: no audit is called so.
            DamagedRecordError: a record of it cannot be read.
        """
        found = await self._report(uid)
        return found or AuditReport(uid, await self.order(uid), phase=Phase.RUNNING)

    async def order(self, uid: str) -> AuditOrder:
        """What was asked for.

        Raises:
            NotFoundError: no audit is called so.
            DamagedRecordError: the record cannot be read.
        """
        order = await self._order(uid)
        if order is None:
            raise NotFoundError(
                f"{uid!r} is no audit", where="audits", remedy="`fmesh audit --list` shows them"
            )
        return order

    async def _order(self, uid: str) -> AuditOrder | None:
        key = spec_key(uid)
        record = await self._records.read(key)
        return None if record is None else decode_record(_spec_decoder, key, record.data).order

    async def _report(self, uid: str) -> AuditReport | None:
        key = audit_key(uid)
        record = await self._records.read(key)
        return None if record is None else decode_record(_decoder, key, record.data)

    async def _quarantine(self, run: Run, order: AuditOrder, finding: AuditFinding) -> bool:
        check = finding.check
        port = finding.ports[0]
        entry = QuarantineEntry(
            signature_class=check.signature_class,
            engine=check.engine,
            contract=check.contract,
            implementation=check.implementation,
            fields=check.fields,
            bump=0,
            active=True,
            since_s=self._clock(),
            audit=run.uid,
            run_uid=order.run_uid,
            step=check.step,
            action_id=check.action_id,
            port=port,
            published=check.outputs.get(port, ""),
            again=finding.again.get(port, ""),
            published_by=check.published_by,
            again_by=finding.again_by,
        )
        return await self.quarantine.add(entry, seen=check.bump)


def _order_of_nothing(run: Run) -> AuditOrder:
    """The order of an audit of which only the run is known."""
    return AuditOrder(
        run_uid=run.plan.audit_of,
        run=run.plan.name,
        namespace=run.plan.namespace,
        share=0.0,
        seed=0,
        created_s=run.created_s,
        eligible=0,
        checks=(),
        unchecked=(),
        passed_over={},
    )
