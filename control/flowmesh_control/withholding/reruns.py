"""Starts a run once more, after results that it used were withheld.

The new run has the plan and scopes of the first, in the same namespace, and is paid by the fabric.
It reuses every result that is still believed; what is withheld is made again and published at the
next generation.
"""

import secrets

import msgspec

from flowmesh_api.v1.withheld import ConcernedRun
from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.ledger import read_segments
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import decode_record, spec_decoder
from flowmesh_control.runs.admission import Admission, Compiled
from flowmesh_core.errors import FlowMeshError, StoreFullError, StoreUnavailableError
from flowmesh_core.identity import digest_bytes
from flowmesh_store.ports import RecordStore


class Reruns:
    """Starts runs once more."""

    def __init__(self, records: RecordStore, admission: Admission) -> None:
        self._records = records
        self._admission = admission

    async def start(self, run: ConcernedRun) -> ConcernedRun:
        """Starts a run once more, or joins an unfinished repetition of it.

        Returns:
            The same run with the uid of its repetition, or with the reason for which there is none.

        Raises:
            StoreUnavailableError, StoreFullError: try again.
        """
        try:
            return msgspec.structs.replace(run, rerun=await self._start(run.uid))
        except (StoreUnavailableError, StoreFullError):
            raise
        except FlowMeshError as e:
            return msgspec.structs.replace(run, refused=e.message)

    async def _start(self, uid: str) -> str:
        record = await self._records.read(spec_key(uid))
        if record is None:
            raise FlowMeshError("its workflow is no longer stored")
        lines = (await read_segments(self._records, uid)).lines
        pins = await read_pins(self._records, uid, lines)
        if pins.plan.audit_of:
            raise FlowMeshError("it is an audit")
        spec = decode_record(spec_decoder, spec_key(uid), record)
        plan = msgspec.structs.replace(
            pins.plan, paid_by_fabric=True, budget_nanousd=0, deadline_s=0.0, suspend=False
        )
        compiled = Compiled(spec.document, plan, pins.scopes, pins.artifacts, spec.uploads)
        again = f"{plan.name}-{secrets.token_hex(4)}"
        digest = digest_bytes(msgspec.json.encode(["rerun", uid]))
        return (await self._admission.accept_plan(compiled, digest, uid=again)).uid
