"""What is written of a run besides its ledger: the spec, the pins and the end."""

from typing import Any, TypeVar

import msgspec

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.runs import RunStatus, RunSummary
from flowmesh_core.decoding import decode
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.graph.plan import Plan
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.units import Digest

UNREADABLE = "unreadable"
"""The phase of a run in a list where a record of it is damaged."""

_NOT_ENDED = 0.0
"""Shown in lists: it is not the default object of the field, which the JSON leaves out."""

_Content = TypeVar("_Content")


class SpecRecord(msgspec.Struct, frozen=True):
    """``runs/<uid>/spec``: what was submitted. A run exists once this is written.

    The pins stand in the same record (:class:`AcceptedRecord`): decoded by those who need them.

    Attributes:
        digest: of namespace, document and uploads; an unfinished run of the same is resumed.
        document: the workflow as it was submitted.
        uploads: references to what was stored for its inputs, by the input's name.
    """

    uid: str
    name: str
    namespace: str
    digest: Digest
    created_s: float
    document: dict[str, Any]
    uploads: dict[str, str] = {}


class PinsRecord(msgspec.Struct, frozen=True):
    """What it was compiled to, with every version fixed.

    It is a part of ``runs/<uid>/spec``; earlier releases wrote it as ``runs/<uid>/pins``.

    Attributes:
        scheme: version of the identity scheme.
        artifacts: the content of the references in the plan.
        bumps: signature classes in quarantine at its creation: they salt the names of its actions.
    """

    scheme: int
    plan: Plan
    scopes: ScopePlan
    artifacts: dict[str, Artifact] = {}
    bumps: dict[Digest, int] = {}


class AcceptedRecord(SpecRecord, frozen=True):
    """``runs/<uid>/spec`` as it is written: one record, so that accepting a run is one write.

    Attributes:
        pins: None where an earlier release wrote them as a record of their own.
    """

    pins: PinsRecord | None = None


class FinalRecord(msgspec.Struct, frozen=True):
    """``runs/<uid>/final``: how it ended, as seen by the leader of ``epoch``."""

    epoch: int
    status: RunStatus
    outputs: dict[str, tuple[Artifact, ...]] = {}


def summary_of(status: RunStatus) -> RunSummary:
    """A run's line in a list."""
    counts = status.counts
    return RunSummary(
        uid=status.uid,
        name=status.name,
        namespace=status.namespace,
        phase=status.phase,
        created_s=status.created_s,
        ended_s=status.ended_s or _NOT_ENDED,
        steps=sum(counts.values()),
        completed=counts.get(StepState.COMPLETED, 0),
        failed=counts.get(StepState.FAILED, 0),
        skipped=counts.get(StepState.SKIPPED, 0),
        cancelled=counts.get(StepState.CANCELLED, 0),
        executed=status.executed,
        hits=status.hits,
        paid_nanousd=status.paid_nanousd,
        saved_nanousd=status.saved_nanousd,
        message=status.message,
        audit_of=status.audit_of,
    )


def decode_record(
    decoder: "msgspec.json.Decoder[_Content]", key: str, data: bytes, *, remedy: str = ""
) -> _Content:
    """What a record says.

    Args:
        decoder: of its type.
        key: the record's, for the error.
        data: its bytes.
        remedy: where restoring it is not the only one.

    Raises:
        DamagedRecordError: it is not what its key says.
    """
    try:
        return decode(decoder, data)
    except msgspec.DecodeError as e:
        remedy = remedy or "restore the object from a copy of the store"
        raise DamagedRecordError(key, str(e), remedy=remedy) from e


def unreadable(uid: str, spec: SpecRecord | None, error: DamagedRecordError) -> RunSummary:
    """The line of a run of which a record is damaged."""
    return RunSummary(
        uid=uid,
        name="" if spec is None else spec.name,
        namespace="" if spec is None else spec.namespace,
        phase=UNREADABLE,
        created_s=0.0 if spec is None else spec.created_s,
        message=str(error),
    )


spec_decoder = msgspec.json.Decoder(SpecRecord)
accepted_decoder = msgspec.json.Decoder(AcceptedRecord)
pins_decoder = msgspec.json.Decoder(PinsRecord)
final_decoder = msgspec.json.Decoder(FinalRecord)
