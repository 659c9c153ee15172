"""The roots of a collection for a run that is neither live nor known to have ended.

Such a run waits for an engine that is not installed, or one of its records is damaged, or the store
is read-only. Its pins and its ledger name its inputs, outputs and checkpoints.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_control.records.keys import spec_key
from flowmesh_control.records.ledger import read_segments
from flowmesh_control.records.run_pins import read_pins
from flowmesh_control.records.run_records import decode_record, spec_decoder
from flowmesh_core.accounting.ledger_lines import CheckpointLine, StepLine
from flowmesh_core.errors import DamagedRecordError, FlowMeshError
from flowmesh_core.machine import checkpoints
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.revocation import is_hidden
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import may_read
from flowmesh_store.ports import RecordStore

_WORKFLOW = "FlowMeshWorkflow"


@dataclass(frozen=True, slots=True)
class UnreadableRun:
    """A run whose records do not say what it needs.

    Attributes:
        namespace: its own; empty where its specification cannot be read, or it may read the content
            of other namespaces, as an audit does.
        error: which record, and why.
    """

    uid: str
    namespace: str
    error: FlowMeshError

    def may_need(self, scope: str) -> bool:
        """Whether it may read content of a scope, which then stays."""
        return not self.namespace or may_read(self.namespace, scope)

    def __str__(self) -> str:
        """Returns what is not deleted, why, and what to do."""
        whose = f"that namespace {self.namespace} may read" if self.namespace else "at all"
        text = f"no content {whose} is deleted, since it is not known what run {self.uid} needs: "
        text += str(self.error)
        if isinstance(self.error, DamagedRecordError):
            text += f"; or remove runs/{self.uid}/ from the store, which gives the run up"
        return text


async def unreadable_run(records: RecordStore, uid: str, error: FlowMeshError) -> UnreadableRun:
    """Returns a run whose records raised an error, with its namespace if that is known."""
    record = await records.read(spec_key(uid))
    try:
        spec = None if record is None else decode_record(spec_decoder, spec_key(uid), record)
    except DamagedRecordError:
        spec = None
    known = spec is not None and spec.document.get("kind", _WORKFLOW) == _WORKFLOW
    return UnreadableRun(uid, spec.namespace if spec is not None and known else "", error)


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
        DamagedRecordError: specification, pins or ledger cannot be read, so it is not known what
            the run needs: a collection keeps what its namespace may read (:class:`UnreadableRun`).
        NewerPlanError: only a newer release can read the pins; with the same consequence.
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
