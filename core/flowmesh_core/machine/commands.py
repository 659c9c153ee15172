"""Commands: what the machine wants done. The control plane answers with events where due."""

from typing import final

import msgspec

from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.graph.conditions import ConditionQuery
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.messages import (
    Assignment,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
)
from flowmesh_core.protocol.results import ActionResult, Usage
from flowmesh_core.units import Digest


@final
class LookUp(msgspec.Struct, frozen=True, gc=False):
    """Look for a published result; answer with ``LookedUp``.

    Attributes:
        scopes: tried in this order; the answer repeats them, ``not_before_s`` and ``min_trust``.
        not_before_s: results created earlier are too old (``maxAge``); 0 accepts any.
        min_trust: results of pools of less trust do not count.
        uid: the run that wants it. Look-ups take turns by namespace; one that another namespace
            wants too is emitted again for it, so that it does not wait for the first one's turn.
    """

    key: ActionKey
    scopes: tuple[str, ...]
    not_before_s: float = 0.0
    min_trust: int = 0
    uid: str = ""


@final
class Publish(msgspec.Struct, frozen=True, gc=False):
    """Write an action result; answer with ``Published`` or ``PublishFailed``.

    Attributes:
        replace: whether a stored result of a lower generation is to be replaced (it expired or lost
            a blob); otherwise the first wins.
        not_before_s: a stored result that was created earlier is replaced too, since a subscriber
            does not accept it (``maxAge``); 0 accepts any.
        min_trust: neither is a stored result of a pool of less trust accepted (``minTrust``).
        copy_from: other scopes that have blobs of the result; they are copied to its own first.
    """

    key: ActionKey
    result: ActionResult
    replace: bool = False
    not_before_s: float = 0.0
    min_trust: int = 0
    copy_from: tuple[str, ...] = ()


class Assign(msgspec.Struct, frozen=True, gc=False):
    """Assign this attempt to the worker. Secrets named in ``secrets`` are filled in outside.

    Attributes:
        generation: of the result that the attempt would publish.
        read_scopes: where its inputs may lie: those of the subscription that it was made from.
    """

    worker: str
    assignment: Assignment
    secrets: tuple[str, ...] = ()
    namespace: str = ""
    generation: int = 1
    read_scopes: tuple[str, ...] = ()


class CancelAttempt(msgspec.Struct, frozen=True, gc=False):
    """Cancel this attempt on the worker."""

    worker: str
    attempt_id: str


class Prewarm(msgspec.Struct, frozen=True, gc=False):
    """Have the worker load these engines, and fetch their models, ahead of work."""

    worker: str
    openings: tuple[PrewarmSpec, ...]


class Serve(msgspec.Struct, frozen=True, gc=False):
    """Have the worker hold exactly these replicas of services, and its hub use these routers."""

    worker: str
    replicas: tuple[ServingReplica, ...]
    routers: tuple[RouterAddress, ...]


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """Tell the worker that it may drop the report of this attempt's end."""

    worker: str
    attempt_id: str


class ConfirmAttempts(msgspec.Struct, frozen=True, gc=False):
    """Answer a worker's full state: these of its attempts go on, the others stop."""

    worker: str
    keep: tuple[str, ...]


class DrainWorker(msgspec.Struct, frozen=True, gc=False):
    """Ask a worker to take nothing new and leave; it is idle."""

    worker: str


class AppendLedgerLine(msgspec.Struct, frozen=True, gc=False):
    """Append a line to a run's ledger (flushed within a second, and before a verdict)."""

    uid: str
    line: Line


class AttemptSettled(msgspec.Struct, frozen=True, gc=False):
    """Report that an attempt has ended and is paid for; listeners may record it.

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
    """Store a composed manifest in a scope: this run's end is about to refer to it."""

    digest: Digest
    manifest: Manifest
    uid: str
    scope: str


class PutBlob(msgspec.Struct, frozen=True, gc=False):
    """Store a small blob that came inside a result: this run's end is about to refer to it."""

    digest: Digest
    data: bytes
    uid: str
    scope: str


@final
class CheckBlobs(msgspec.Struct, frozen=True, gc=False):
    """Find out which of these blobs are lost; answer with ``BlobsChecked``.

    Attributes:
        digests: by the scope that is to have them; what only another scope has is copied there.
        read_scopes: those that the run reads.
        sizes: of the blobs whose size is known, in bytes; one of another size is lost.
    """

    uid: str
    digests: dict[str, frozenset[Digest]]
    read_scopes: tuple[str, ...]
    sizes: dict[Digest, int] = {}


class DeleteCorruptBlobs(msgspec.Struct, frozen=True, gc=False):
    """Delete those of these blobs whose bytes do not match their digest.

    Attributes:
        uid: a run that needs them.
        scopes: where it reads them; each of them is looked through.
    """

    digests: frozenset[Digest]
    uid: str
    scopes: tuple[str, ...]


class CompareContent(msgspec.Struct, frozen=True, gc=False):
    """Find out whether a result is what its identities say, as a reader says that it is not.

    Answer with ``ProtocolViolated`` where it is not, and not at all otherwise: a worker's word
    alone does not count against another worker.

    Attributes:
        result: names the worker that reported it.
        blobs: those that the reader named.
        uid: a run that needs them.
        scopes: those that the run reads.
    """

    result: ActionResult
    blobs: frozenset[Digest]
    uid: str
    scopes: tuple[str, ...]


class EvaluateCondition(msgspec.Struct, frozen=True, gc=False):
    """Evaluate a step's condition; answer with ``ConditionEvaluated``.

    Attributes:
        number: of the evaluation; no two of an epoch share it.
    """

    uid: str
    number: int
    query: ConditionQuery


class FinalizeRun(msgspec.Struct, frozen=True, gc=False):
    """Flush the run's ledger, write ``final``, then answer with ``RunFinalized``."""

    uid: str


class RunChanged(msgspec.Struct, frozen=True, gc=False):
    """Publish this run's status, since something in it has changed."""

    uid: str


Command = (
    LookUp
    | Publish
    | Assign
    | CancelAttempt
    | Prewarm
    | Serve
    | Acknowledge
    | ConfirmAttempts
    | DrainWorker
    | AppendLedgerLine
    | AttemptSettled
    | PutManifest
    | PutBlob
    | CheckBlobs
    | DeleteCorruptBlobs
    | CompareContent
    | EvaluateCondition
    | FinalizeRun
    | RunChanged
)
