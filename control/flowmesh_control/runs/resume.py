"""Resumes runs that are suspended because the control plane stopped while it worked on them.

Only administrators may do this, since the run may stop the control plane of everybody again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import ConflictError
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import decode_record, spec_decoder, submission_of
from flowmesh_control.records.suspects import CONTROL_PLANE_STOPPED, forget_deaths
from flowmesh_control.runs.admission import Admission
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.machine.events import Submitted
from flowmesh_store.ports import RecordStore


@dataclass(frozen=True, slots=True)
class RunResumption:
    """Resumes suspended runs.

    Attributes:
        waiting: runs that wait; a run is removed when it is resumed.
        post_and_wait: posts an event to the machine and waits until it was applied.
    """

    records: RecordStore
    ledger: LedgerWriter
    admission: Admission
    waiting: dict[str, RunStatus]
    post_and_wait: Callable[[Submitted], Awaitable[None]]

    async def resume(self, uid: str) -> None:
        """Continues a run, as if the control plane had never stopped because of it.

        Raises:
            ConflictError: it is not suspended for this reason.
            StoreError: it is still suspended; try again.
        """
        status = self.waiting.get(uid)
        if status is None or status.reason != CONTROL_PLANE_STOPPED:
            raise ConflictError(
                "it is not suspended because of a stop of the control plane",
                where=f"runs/{uid}",
                remedy=f"`fmesh amend {uid} --resume` continues a run that a user suspended",
            )
        key = spec_key(uid)
        record = await self.records.read(key)
        if record is None:
            raise DamagedRecordError(key, "it is missing", remedy="restore the object")
        spec = decode_record(spec_decoder, key, record)
        lines = tuple(self.ledger.lines(uid) or ())
        pins = await read_pins(self.records, uid, lines)
        await forget_deaths(self.records, uid)
        if self.waiting.pop(uid, None) is None:
            return  # an equal request, or a cancel, was faster
        await self.post_and_wait(submission_of(spec, pins, lines))
        self.admission.remember(spec)
