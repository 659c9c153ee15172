"""The roots of a collection for a run that is neither live nor known to have ended.

Such a run waits for an engine that is not installed, or one of its records is damaged, or the store
is read-only. Its pins and its ledger name its inputs, outputs and checkpoints.
"""

from collections.abc import Sequence

from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.ledger import read_segments
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import decode_record, spec_decoder
from flowmesh_core.accounting.ledger_lines import CheckpointLine, StepLine
from flowmesh_core.machine import checkpoints
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.revocation import is_hidden
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.ports import RecordStore


async def artifacts_of_stored_run(
    records: RecordStore, uid: str, revoked: Sequence[ContentRevoked]
) -> list[tuple[tuple[str, ...], Artifact]]:
    """Returns the artifacts that a run's records name, each with the scopes to keep it in.

    None for a run that was not accepted.

    Args:
        records: of the store.
        uid: of the run.
        revoked: what is no root for the runs that these concern.

    Raises:
        DamagedRecordError: pins or ledger cannot be read, so nothing may be deleted.
        NewerPlanError: only a newer release can read the pins; again nothing may be deleted.
    """
    record = await records.read(spec_key(uid))
    if record is None:
        return []
    spec = decode_record(spec_decoder, spec_key(uid), record)
    lines = (await read_segments(records, uid)).lines
    pins = await read_pins(records, uid, lines)
    scopes = pins.scopes.readable
    found = [(scopes, artifact) for artifact in pins.artifacts.values()]
    for line in lines:
        if isinstance(line, StepLine):
            found += ((scopes, a) for a in line.outputs.values() if a is not None)
        elif isinstance(line, CheckpointLine):
            kept = Artifact(checkpoints.KIND, line.digest, line.digest, line.size_bytes)
            found.append(((line.scope,), kept))
    return [
        (scopes, artifact)
        for scopes, artifact in found
        if not is_hidden(revoked, spec.namespace, spec.created_s, artifact.digest)
    ]
