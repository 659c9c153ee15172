"""Types of a run's records besides its ledger: the spec, the pins and the end."""

from collections import Counter
from typing import Any, TypeVar

import msgspec

from flowmesh_api.v1.enums import ENDED_PHASES, Phase, StepState
from flowmesh_api.v1.runs import RunStatus, RunSummary
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.decoding import decode
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.graph.plan import Plan
from flowmesh_core.machine.events import Submitted
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.published_parts import PublishedPart
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.units import Digest
from flowmesh_store.ports import Record

RESTORE = "restore the object from a copy of the store"
"""The default remedy for a damaged record."""
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
        level: the least ``PLAN_LEVEL`` of a release that runs the plan.
    """

    scheme: int
    plan: Plan
    scopes: ScopePlan
    artifacts: dict[str, Artifact] = {}
    quarantine_salts: dict[Digest, int] = {}
    level: int = 1


class AcceptedRecord(SpecRecord, frozen=True):
    """``runs/<uid>/spec`` as it is written: one record, so that accepting a run is one write.

    Attributes:
        pins: None where an earlier release wrote them as a separate record.
    """

    pins: PinsRecord | None = None


class FinalRecord(msgspec.Struct, frozen=True):
    """``runs/<uid>/final``: a run's end, by the leader of ``epoch``.

    Attributes:
        scope: the one that the run published to; its references are issued for it.
        read_scopes: those that the run read, which have its outputs.
        partial: what was published of the outputs of steps that did not complete.
    """

    epoch: int
    status: RunStatus
    outputs: dict[str, tuple[Artifact, ...]] = {}
    scope: str = ""
    read_scopes: tuple[str, ...] = ()
    partial: dict[str, tuple[PublishedPart, ...]] = {}


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


def summary_of_live(run: Run) -> RunSummary:
    """Returns the summary of a run under way, without the status of each of its steps."""
    states = Counter(step.state for step in run.steps.values())
    return RunSummary(
        uid=run.uid,
        name=run.plan.name,
        namespace=run.plan.namespace,
        phase=Phase.RUNNING if run.phase in ENDED_PHASES else run.phase,  # not durable yet
        created_s=run.created_s,
        ended_s=_NOT_ENDED,
        steps=len(run.steps),
        completed=states[StepState.COMPLETED],
        failed=states[StepState.FAILED],
        skipped=states[StepState.SKIPPED],
        cancelled=states[StepState.CANCELLED],
        executed=sum(step.executed for step in run.steps.values()),
        hits=sum(step.hits for step in run.steps.values()),
        paid_nanousd=run.paid_nanousd,
        saved_nanousd=run.saved_nanousd,
        message=run.failure.message if run.failure else run.cancel_reason,
        audit_of=run.plan.audit_of,
    )


def decode_record(
    decoder: "msgspec.json.Decoder[_Content]", key: str, record: Record, *, remedy: str = ""
) -> _Content:
    """Decodes a record.

    Args:
        decoder: of its type.
        key: of the record, for the error.
        record: as the store returned it.
        remedy: replaces the default one, which is to restore the object.

    Raises:
        DamagedRecordError: it is not of the type, or not sealed by this installation.
    """
    check_seal(key, record, remedy=remedy or RESTORE)
    try:
        return decode(decoder, record.data)
    except msgspec.DecodeError as e:
        raise DamagedRecordError(key, str(e), remedy=remedy or RESTORE) from e


def check_seal(key: str, record: Record, *, remedy: str = RESTORE) -> None:
    """Checks that the store believed a record.

    Raises:
        DamagedRecordError: its seal is not valid, or its key is not in the key ring.
    """
    if record.unknown_key:
        remedy = f"restore master key {record.unknown_key} and start again"
    if record.damage:
        raise DamagedRecordError(key, record.damage, remedy=remedy)


def submission_of(spec: SpecRecord, pins: PinsRecord, lines: tuple[Line, ...]) -> Submitted:
    """Returns the event that gives a run to the machine again.

    Args:
        spec: of the run.
        pins: what it is pinned to now.
        lines: its ledger so far.
    """
    return Submitted(
        uid=spec.uid,
        plan=pins.plan,
        created_s=spec.created_s,
        scopes=pins.scopes,
        artifacts=pins.artifacts,
        restored=lines,
        quarantine_salts=pins.quarantine_salts,
    )


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
