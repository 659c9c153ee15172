"""Ends audits: compares the repeated results, writes the report and quarantines differences.

Called while an audit's run is finalized, before its ``final`` is written. If the control plane dies
in between, the run is unfinished and the next control plane compares again.
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
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.audit.report import counts_of, findings_of
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.machine.model import Run
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

ORDER = "order"
"""The key of the order in an audit's spec document."""


class _Document(msgspec.Struct, frozen=True):
    """The part of a spec's document that says what an audit checks."""

    order: AuditOrder | None = None


class _Spec(msgspec.Struct, frozen=True):
    """The part of a run's spec that says what an audit checks."""

    document: _Document

    @property
    def order(self) -> AuditOrder | None:
        """The order of the audit; None where the run is not an audit."""
        return self.document.order


_decoder = msgspec.json.Decoder(AuditReport)
_spec_decoder = msgspec.json.Decoder(_Spec)


class AuditRecords:
    """The audits of a fabric and their reports.

    Attributes:
        counts: audited actions by verdict, of all audits that ended.
    """

    def __init__(self, records: RecordStore, quarantine: Quarantine, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self.quarantine = quarantine
        self.counts: Counter[str] = Counter()

    async def load(self, archive: Archive) -> None:
        """Counts the verdicts of earlier audits, except those with unreadable reports."""
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
        """Compares, quarantines and writes the report; may be repeated.

        If a record that it needs is damaged, the report says so instead.

        Raises:
            StoreUnavailableError, StoreFullError: try again.
        """
        try:
            if await self._report(run.uid) is not None:
                return
        except DamagedRecordError as e:  # by a leader that died before the run's ``final``
            log.warning("%s; it is written again", e)
        report = await self._compared(run)
        await overwrite(self._records, audit_key(run.uid), msgspec.json.encode(report))
        self.counts.update(report.counts)

    async def _compared(self, run: Run) -> AuditReport:
        order, cut_off = await self._readable_order(run)
        findings = findings_of(order, run)
        quarantined: dict[str, None] = {}
        for finding in () if order.sampled else findings:  # of samples a third worker decides
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
        """Returns the order; if it cannot be read, an empty order and the reason."""
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
        """Returns an audit's report; while it runs, only its order.

        Raises:
            NotFoundError: no audit has this uid.
            DamagedRecordError: a record of it cannot be read.
        """
        found = await self._report(uid)
        return found or AuditReport(uid, await self.order(uid), phase=Phase.RUNNING)

    async def order(self, uid: str) -> AuditOrder:
        """Returns the order of an audit: what it checks.

        Raises:
            NotFoundError: no audit has this uid.
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
        return None if record is None else decode_record(_spec_decoder, key, record).order

    async def _report(self, uid: str) -> AuditReport | None:
        key = audit_key(uid)
        record = await self._records.read(key)
        return None if record is None else decode_record(_decoder, key, record)

    async def quarantine_class(self, run: Run, finding: AuditFinding) -> bool:
        """Quarantines the signature class of a sampled action of which no two workers agree.

        Raises:
            StoreUnavailableError, StoreFullError: try again; nothing is added twice.
            DamagedRecordError, NotFoundError: a record that it needs cannot be read.
        """
        return await self._quarantine(run, await self.order(run.uid), finding)

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
    """Returns an empty order, for an audit of which only the run is known."""
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
