"""The lines of a run's ledger: what is durable about a run besides its actions' results.

The machine emits lines; the control plane appends them to ``runs/<uid>/ledger/<epoch>-<seq>`` each
second and before a verdict is published; recovery reads them back; receipts are computed from them.

A release reads ledgers of older and of newer releases. A line of a type that it does not know is
kept as it is and has no effect; a plan that needs such lines has a higher level (``PLAN_LEVEL``).
"""

from typing import Any, get_args

import msgspec

from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.decoding import decode
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest


class CheckpointLine(msgspec.Struct, frozen=True, tag="checkpoint", omit_defaults=True, gc=False):
    """A checkpoint of an action: where it resumes after a restart, if it is not done.

    Attributes:
        scope: with ``action_id``, the action that it is of.
        digest: of its tree.
        done: how far the work was, on the scale of the attempt's progress.
        trust: of all workers whose work it has, the least; 0 in lines of earlier releases.
    """

    time_s: float
    step: str
    chunk: int
    scope: str
    action_id: Digest
    digest: Digest
    done: float = 0.0
    size_bytes: int = 0
    trust: int = 0


class AmendmentLine(msgspec.Struct, frozen=True, tag="amendment", gc=False):
    """A change of ``suspend``, ``priority``, ``budgetUsd`` or ``deadline``, or of a run's pins.

    New pins are in the record that ``pins`` names; ``versions`` says which engines have changed.
    """

    time_s: float
    changes: dict[str, Any]


class StepLine(msgspec.Struct, frozen=True, tag="step", omit_defaults=True, gc=False):
    """The end of a step run; ``outputs`` pins its artifacts, for lineage and outputs."""

    time_s: float
    step: str
    state: str
    reason: str = ""
    message: str = ""
    outputs: dict[str, Artifact | None] = {}


class ConditionLine(msgspec.Struct, frozen=True, tag="condition", omit_defaults=True, gc=False):
    """The result of a step's condition, so that a restart does not evaluate it again.

    Attributes:
        digest: of the condition and of the artifacts that it reads; the line counts for these only.
        holds: whether the step runs.
        evaluation_steps: that the evaluation took of the run's budget.
        message: why it could not be evaluated, with its ``remedy``; empty where it was.
    """

    time_s: float
    step: str
    digest: Digest
    holds: bool = False
    evaluation_steps: int = 0
    message: str = ""
    remedy: str = ""


class VerdictLine(msgspec.Struct, frozen=True, tag="verdict", omit_defaults=True, gc=False):
    """The end of the run."""

    time_s: float
    phase: str
    reason: str = ""
    message: str = ""
    step: str = ""


class UnknownLine(msgspec.Struct, frozen=True, tag="unknown", gc=False):
    """A line of a type that only newer releases know.

    It takes its place among the lines, since the accounts count lines.

    Attributes:
        data: the line as it is stored, without the line break.
    """

    data: bytes


EXECUTED_OUTCOMES = frozenset({"published", "adopted", "audited"})
"""Outcomes of attempts that a run had executed to a result."""

PINS = "pins"
"""The field of an amendment that names the record of the new pins."""

KnownLine = (
    AttemptLine | HitLine | CheckpointLine | AmendmentLine | StepLine | ConditionLine | VerdictLine
)
Line = KnownLine | UnknownLine


class _Tagged(msgspec.Struct):
    """The field of a line that names its type."""

    type: str


_TYPES = frozenset(line.__struct_config__.tag for line in get_args(KnownLine))
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[KnownLine] = msgspec.json.Decoder(KnownLine)
_tag_decoder = msgspec.json.Decoder(_Tagged)


def encode_lines(lines: list[Line]) -> bytes:
    """Returns one JSON object per line; an unknown one as it was read."""
    if UnknownLine in set(map(type, lines)):
        return b"\n".join(map(_encode_line, lines)) + b"\n"
    return _encoder.encode_lines(lines)


def decode_lines(data: bytes) -> list[Line]:
    """Reads a segment of a ledger.

    Raises:
        msgspec.DecodeError: a line is not a ledger line.
    """
    return [_decode_line(part) for part in data.splitlines() if part]


def _encode_line(line: Line) -> bytes:
    return line.data if type(line) is UnknownLine else msgspec.json.encode(line)


def _decode_line(data: bytes) -> Line:
    try:
        return decode(_decoder, data)
    except msgspec.ValidationError:
        if decode(_tag_decoder, data).type in _TYPES:
            raise
        return UnknownLine(data)
