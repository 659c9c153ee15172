"""Types of a run's records besides its ledger: the spec, the pins and the end."""

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
"""The phase, in lists, of a run with a damaged record."""

_NOT_ENDED = 0.0
"""Equal to the field's default but another object, so that the JSON of lists includes it."""

_Content = TypeVar("_Content")


class SpecRecord(msgspec.Struct, frozen=True):
    """``runs/<uid>/spec``: what was submitted. A run exists once this is written.

    The same record has the pins (:class:`AcceptedRecord`), which are decoded only where needed.

    Attributes:
        digest: of namespace, document and uploads; an unfinished run with an equal one is resumed.
        document: the workflow as it was submitted.
        uploads: references to the stored content of its local inputs, by the input's name.
    """

    uid: str
    name: str
    namespace: str
    digest: Digest
    created_s: float
    document: dict[str, Any]
    uploads: dict[str, str] = {}


class PinsRecord(msgspec.Struct, frozen=True):
    """A compiled run with every version fixed.

    It is a part of ``runs/<uid>/spec``; earlier releases wrote it as ``runs/<uid>/pins``.

    Attributes:
        scheme: version of the identity scheme.
        artifacts: the artifacts of the references in the plan.
        quarantine_salts: signature classes in quarantine at its creation; they salt its action ids.
    """

    scheme: int
    plan: Plan
    scopes: ScopePlan
    artifacts: dict[str, Artifact] = {}
    quarantine_salts: dict[Digest, int] = msgspec.field(default_factory=dict, name="bumps")


class AcceptedRecord(SpecRecord, frozen=True):
    """``runs/<uid>/spec`` as it is written: one record, so that accepting a run is one write.

    Attributes:
        pins: None where an earlier release wrote them as a separate record.
    """

    pins: PinsRecord | None = None


class FinalRecord(msgspec.Struct, frozen=True):
    """``runs/<uid>/final``: a run's end, by the leader of ``epoch``."""

    epoch: int
    status: RunStatus
    outputs: dict[str, tuple[Artifact, ...]] = {}


def summary_of(status: RunStatus) -> RunSummary:
    """Returns a run's summary for lists."""
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
    """Decodes a record.

    Args:
        decoder: of its type.
        key: of the record, for the error.
        data: its bytes.
        remedy: replaces the default one, which is to restore the object.

    Raises:
        DamagedRecordError: it is not of the type.
    """
    try:
        return decode(decoder, data)
    except msgspec.DecodeError as e:
        remedy = remedy or "restore the object from a copy of the store"
        raise DamagedRecordError(key, str(e), remedy=remedy) from e


def unreadable(uid: str, spec: SpecRecord | None, error: DamagedRecordError) -> RunSummary:
    """Returns the summary of a run with a damaged record."""
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
