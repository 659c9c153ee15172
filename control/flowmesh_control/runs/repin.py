"""Runs that cannot go on as they are pinned: they are re-pinned to what there is, or cancelled.

A run keeps its versions. Where the catalog has dropped one, the run waits; where no worker offers
one, its steps do. Either way a user may let it go on with the newest versions. New pins are one
more record that is written once; the ledger says that they count.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.runs import RepinnedRun, RunStatus
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.keys import repins_key, spec_key
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import PinsRecord, SpecRecord, decode_record, spec_decoder
from flowmesh_control.runs.admission import Admission, Submission
from flowmesh_control.runs.finalizer import RunFinalizer
from flowmesh_core.accounting.ledger_lines import Line, VerdictLine
from flowmesh_core.graph.plan import Plan
from flowmesh_core.identity import SCHEME
from flowmesh_core.machine.events import Repinned, Submitted
from flowmesh_store.ports import RecordStore


@dataclass(frozen=True, slots=True)
class RepinService:
    """Re-pins runs, and ends those that wait for it.

    Attributes:
        waiting: runs that the catalog cannot serve as they are pinned; what is re-pinned or
            cancelled leaves it.
        tell: hands an event to the machine.
    """

    records: RecordStore
    epoch: int
    ledger: LedgerWriter
    admission: Admission
    finishing: RunFinalizer
    waiting: dict[str, RunStatus]
    tell: Callable[[Repinned], Awaitable[None]]
    clock: Clock

    async def repin(self, uid: str) -> RepinnedRun:
        """Lets an unfinished run go on with the newest versions of its engines.

        Raises:
            ConflictError: there is nothing to re-pin, or its versions are its point.
            SpecError: the workflow is wrong by the contracts of today; it stays as it is.
            StoreError: nothing has changed.
        """
        lines = tuple(self.ledger.lines(uid) or ())
        spec = await self._spec(uid)
        old = await read_pins(self.records, uid, lines)
        if old.plan.audit_of:
            raise ConflictError(
                "an audit is bound to the versions of what it makes again",
                where=f"runs/{uid}",
                remedy="cancel it, and audit a newer run",
            )
        given = self.admission.renewed(spec)
        compiled = await self.admission.compile(
            Submission(document=given.document, namespace=given.namespace, uploads=given.uploads)
        )
        versions = _changes(old.plan, compiled.plan)
        if not versions and old.scheme == SCHEME:
            raise ConflictError(
                "its engines have the newest versions already",
                where=f"runs/{uid}",
                remedy="`fmesh why STEP` says what it waits for",
            )
        pins = PinsRecord(SCHEME, compiled.plan, old.scopes, compiled.artifacts, old.bumps)
        key = repins_key(uid, self.epoch, len(lines))
        found = await self.records.read(key)
        etag = None if found is None else found.etag  # of an earlier call that was cut off
        await self.records.write(key, msgspec.json.encode(pins), if_match=etag)
        now = tuple(self.ledger.lines(uid) or ())
        await self.tell(Repinned(_run(spec, pins, now), key, versions))
        await self.ledger.flush(uid)
        if self.waiting.pop(uid, None) is not None:
            self.admission.remember(spec)
        return RepinnedRun(uid, versions)

    async def cancel(self, uid: str, reason: str) -> RunStatus:
        """Ends a run that waits; what it has published stays.

        Raises:
            StoreError: it still waits.
        """
        now_s = self.clock()
        status = msgspec.structs.replace(
            self.waiting[uid], phase=Phase.CANCELLED, ended_s=now_s, reason="", message=reason,
            remedy="",
        )  # fmt: skip
        self.ledger.append(uid, VerdictLine(now_s, Phase.CANCELLED, message=reason))
        await self.finishing.close(status)
        self.waiting.pop(uid, None)
        return status

    async def _spec(self, uid: str) -> SpecRecord:
        key = spec_key(uid)
        record = await self.records.read(key)
        if record is None:
            raise NotFoundError(f"there is no run {uid!r}", where="runs")
        return decode_record(spec_decoder, key, record.data)


def _run(spec: SpecRecord, pins: PinsRecord, lines: tuple[Line, ...]) -> Submitted:
    return Submitted(
        uid=spec.uid,
        plan=pins.plan,
        created_s=spec.created_s,
        scopes=pins.scopes,
        artifacts=pins.artifacts,
        restored=lines,
        bumps=pins.bumps,
    )


def _changes(old: Plan, new: Plan) -> dict[str, str]:
    before = {step.engine: f"{step.contract}.{step.implementation}" for step in old.steps}
    now = {step.engine: f"{step.contract}.{step.implementation}" for step in new.steps}
    return {
        engine: f"{before.get(engine, 'none')} -> {version}"
        for engine, version in now.items()
        if before.get(engine) != version
    }
