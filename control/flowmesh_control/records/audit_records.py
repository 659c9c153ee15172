"""How audits end: what was made again is compared, and what differs is quarantined.

Called while an audit's run is being finished, before its ``final`` is written: a control plane that
ends in between finds the run unfinished, and the next one compares again.
"""

from collections import Counter

import msgspec

from flowmesh_api.v1.audit import AuditFinding, AuditOrder, AuditReport, QuarantineEntry
from flowmesh_api.v1.enums import Phase
from flowmesh_control.errors import NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.keys import audit_key, spec_key
from flowmesh_control.records.quarantine import Quarantine
from flowmesh_control.records.run_records import spec_decoder
from flowmesh_core.audit.report import counts_of, findings_of
from flowmesh_core.machine.model import Run
from flowmesh_store.ports import RecordStore

ORDER = "order"
"""Where in an audit's spec document its order stands."""
_decoder = msgspec.json.Decoder(AuditReport)


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
        """Counts what earlier control planes found."""
        for run in archive.summaries():
            if run.audit_of and (report := await self._report(run.uid)) is not None:
                self.counts.update(report.counts)

    async def conclude(self, run: Run) -> None:
        """Compares, quarantines and writes the report; again is harmless.

        Raises:
            StoreUnavailableError, StoreFullError: call it again.
        """
        if await self._report(run.uid) is not None:
            return
        order = await self.order(run.uid)
        findings = findings_of(order, run)
        quarantined = {
            f.check.signature_class: None
            for f in findings
            if f.quarantines and await self._quarantine(run, order, f)
        }
        report = AuditReport(
            uid=run.uid,
            order=order,
            phase=run.phase,
            findings=findings,
            counts=counts_of(order, findings),
            quarantined=tuple(quarantined),
            paid_nanousd=run.paid_nanousd,
            ended_s=self._clock(),
            cut_off=run.cancel_reason,
        )
        key = audit_key(run.uid)
        await self._records.write(key, msgspec.json.encode(report), if_match=None)
        self.counts.update(report.counts)

    async def report(self, uid: str) -> AuditReport:
        """What an audit found, or, while it goes on, what it set out to check.

        Raises:
            NotFoundError: no audit is called so.
        """
        found = await self._report(uid)
        return found or AuditReport(uid, await self.order(uid), phase=Phase.RUNNING)

    async def order(self, uid: str) -> AuditOrder:
        """What was asked for.

        Raises:
            NotFoundError: no audit is called so.
        """
        record = await self._records.read(spec_key(uid))
        document = {} if record is None else spec_decoder.decode(record.data).document
        if ORDER not in document:
            raise NotFoundError(
                f"{uid!r} is no audit", where="audits", remedy="`fmesh audit --list` shows them"
            )
        return msgspec.convert(document[ORDER], AuditOrder)

    async def _report(self, uid: str) -> AuditReport | None:
        record = await self._records.read(audit_key(uid))
        return None if record is None else _decoder.decode(record.data)

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
