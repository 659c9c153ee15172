"""What the machine wants done. Control does it and answers with an event where one is due."""

import msgspec

from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.messages import Assignment, PrewarmSpec
from flowmesh_core.protocol.results import ActionResult, Usage
from flowmesh_core.units import Digest


class LookUp(msgspec.Struct, frozen=True, gc=False):
    """Look for a published result; answer with ``LookedUp``.

    Attributes:
        scopes: tried in this order.
        not_before_s: results created earlier are too old (``maxAge``); 0 takes any.
        uid: the run that asks; what another namespace asks too is asked again for it, so that it
            does not wait for the turn of the first.
    """

    key: ActionKey
    scopes: tuple[str, ...]
    not_before_s: float = 0.0
    uid: str = ""


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Write an action result; answer with ``Published`` or ``PublishFailed``.

    Attributes:
        replace: whether a standing result of a lower generation is to be replaced (it expired or
            lost a blob); otherwise the first wins.
    """

    key: ActionKey
    result: ActionResult
    replace: bool = False


class Assign(msgspec.Struct, frozen=True, gc=False):
    """The worker should hold this attempt. Secrets named in ``secrets`` are filled in outside."""

    worker: str
    assignment: Assignment
    secrets: tuple[str, ...] = ()
    namespace: str = ""


class CancelAttempt(msgspec.Struct, frozen=True, gc=False):
    """The worker should no longer hold this attempt."""

    worker: str
    attempt_id: str


class Prewarm(msgspec.Struct, frozen=True, gc=False):
    """The worker should hold these hosts open, and fetch their models, ahead of work."""

    worker: str
    openings: tuple[PrewarmSpec, ...]


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """The worker need not keep the report of this attempt's end."""

    worker: str
    attempt_id: str


class ConfirmAttempts(msgspec.Struct, frozen=True, gc=False):
    """The answer to a worker's full state: these of its held attempts go on, others stop."""

    worker: str
    keep: tuple[str, ...]


class AppendLedgerLine(msgspec.Struct, frozen=True, gc=False):
    """Append a line to a run's ledger (flushed within a second, and before a verdict)."""

    uid: str
    line: Line


class AttemptSettled(msgspec.Struct, frozen=True, gc=False):
    """An attempt has ended and is paid for: nothing is to be done, but somebody may be told.

    Attributes:
        outcome: as in ``AttemptLine``.
        usage: None where the worker did not report.
        subscribers: (run, step path) of those that waited for it.
    """

    attempt_id: str
    action_id: Digest
    engine: str
    worker: str
    pool: str
    outcome: str
    message: str
    assigned_s: float
    ended_s: float
    usage: Usage | None
    subscribers: tuple[tuple[str, str], ...]


class PutManifest(msgspec.Struct, frozen=True, gc=False):
    """Store a composed manifest under ``cas/``: this run's end is about to refer to it."""

    digest: Digest
    manifest: Manifest
    uid: str


class PutBlob(msgspec.Struct, frozen=True, gc=False):
    """Store a small blob that travelled inside a result: this run's end is about to refer to it."""

    digest: Digest
    data: bytes
    uid: str


class CheckBlobs(msgspec.Struct, frozen=True, gc=False):
    """Say which of these blobs are lost; answer with ``BlobsChecked``."""

    uid: str
    digests: frozenset[Digest]


class DeleteCorruptBlobs(msgspec.Struct, frozen=True, gc=False):
    """Delete those of these blobs whose bytes do not match their digest.

    Attributes:
        uid: a run that needs them.
    """

    digests: frozenset[Digest]
    uid: str


class FinalizeRun(msgspec.Struct, frozen=True, gc=False):
    """Flush the run's ledger, write ``final``, then answer with ``RunFinalized``."""

    uid: str


class RunChanged(msgspec.Struct, frozen=True, gc=False):
    """Something that a status shows of this run has changed."""

    uid: str


Command = (
    LookUp
    | Publish
    | Assign
    | CancelAttempt
    | Prewarm
    | Acknowledge
    | ConfirmAttempts
    | AppendLedgerLine
    | AttemptSettled
    | PutManifest
    | PutBlob
    | CheckBlobs
    | DeleteCorruptBlobs
    | FinalizeRun
    | RunChanged
)
