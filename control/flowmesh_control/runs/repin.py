"""Re-pins runs to the newest versions of their engines, or cancels runs that wait for old ones.

A run keeps the versions that it was pinned to. If the catalog no longer has one, the run waits; if
no worker offers one, its steps wait. In both cases a user may re-pin it. New pins are a further
record that is written once; a line of the ledger makes them effective.
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
from flowmesh_control.records.run_records import (
    PinsRecord,
    SpecRecord,
    decode_record,
    spec_decoder,
    submission_of,
)
from flowmesh_control.records.suspects import CONTROL_PLANE_STOPPED
from flowmesh_control.runs.admission import Admission, Submission
from flowmesh_control.runs.finalizer import RunFinalizer
from flowmesh_core.accounting.ledger_lines import VerdictLine
from flowmesh_core.graph.plan import Plan
from flowmesh_core.identity import SCHEME
from flowmesh_core.machine.events import Repinned
from flowmesh_store.ports import RecordStore


@dataclass(frozen=True, slots=True)
class RepinService:
    """Re-pins runs, and cancels those that wait for it.

    Attributes:
        waiting: runs whose pinned versions the catalog does not have; a run is removed when it is
            re-pinned or cancelled.
        post_and_wait: posts an event to the machine and waits until it was applied.
    """

    records: RecordStore
    epoch: int
    ledger: LedgerWriter
    admission: Admission
    finishing: RunFinalizer
    waiting: dict[str, RunStatus]
    post_and_wait: Callable[[Repinned], Awaitable[None]]
    clock: Clock

    async def repin(self, uid: str) -> RepinnedRun:
        """Moves an unfinished run to the newest versions of its engines.

        Raises:
            ConflictError: it has the newest versions, is an audit, or is suspended because it
                stopped the control plane.
            SpecError: the workflow does not compile with the newest contracts; nothing changed.
            StoreError: nothing changed.
        """
        waits = self.waiting.get(uid)
        if waits is not None and waits.reason == CONTROL_PLANE_STOPPED:
            raise ConflictError(waits.message, where=f"runs/{uid}", remedy=waits.remedy)
        lines = tuple(self.ledger.lines(uid) or ())
        spec = await self._spec(uid)
        old = await read_pins(self.records, uid, lines)
        if old.plan.audit_of:
            raise ConflictError(
                "an audit must use the engine versions of the run that it audits",
                where=f"runs/{uid}",
                remedy="cancel it, and audit a newer run",
            )
        compiled = await self.admission.compile(
            Submission(document=spec.document, namespace=spec.namespace, uploads=spec.uploads)
        )
        versions = _changes(old.plan, compiled.plan)
        if not versions and old.scheme == SCHEME:
            raise ConflictError(
                "its engines have the newest versions already",
                where=f"runs/{uid}",
                remedy="`fmesh why STEP` says what it waits for",
            )
        pins = PinsRecord(
            SCHEME,
            compiled.plan,
            old.scopes,
            compiled.artifacts,
            old.quarantine_salts,
            level=compiled.plan.level,
        )
        key = repins_key(uid, self.epoch, len(lines))
        found = await self.records.read(key)
        etag = None if found is None else found.etag  # of an earlier call that was interrupted
        await self.records.write(key, msgspec.json.encode(pins), if_match=etag)
        current = tuple(self.ledger.lines(uid) or ())
        await self.post_and_wait(Repinned(submission_of(spec, pins, current), key, versions))
        await self.ledger.flush(uid)
        if self.waiting.pop(uid, None) is not None:
            self.admission.remember(spec)
        return RepinnedRun(uid, versions)

    async def cancel(self, uid: str, reason: str) -> RunStatus:
        """Cancels a run that waits; its published results stay.

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
        return decode_record(spec_decoder, key, record)


def _changes(old: Plan, new: Plan) -> dict[str, str]:
    before = {step.engine: f"{step.contract}.{step.implementation}" for step in old.steps}
    now = {step.engine: f"{step.contract}.{step.implementation}" for step in new.steps}
    return {
        engine: f"{before.get(engine, 'none')} -> {version}"
        for engine, version in now.items()
        if before.get(engine) != version
    }
