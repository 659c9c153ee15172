"""What the machine wants done. Control does it and answers with an event where one is due."""

from dataclasses import dataclass

from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.run.events import ActionKey
from flowmesh_core.run.ledger import Line
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look for a published result; answer with ``LookedUp``.

    Attributes:
        scopes: tried in this order.
        not_before_s: results created earlier are too old (``maxAge``); 0 takes any.
    """

    key: ActionKey
    scopes: tuple[str, ...]
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Publish:
    """Write an action result; answer with ``Published`` or ``PublishFailed``.

    Attributes:
        replace: whether a standing result of a lower generation is to be replaced (it expired or
            lost a blob); otherwise the first wins.
    """

    key: ActionKey
    result: ActionResult
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """The worker should hold this attempt. Secrets named in ``secrets`` are filled in outside."""

    worker: str
    assignment: Assignment
    secrets: tuple[str, ...] = ()
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """The worker should no longer hold this attempt."""

    worker: str
    attempt_id: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The worker need not keep the report of this attempt's end."""

    worker: str
    attempt_id: str


@dataclass(frozen=True, slots=True)
class KeepAttempts:
    """The answer to a worker's full state: these of its held attempts go on, others stop."""

    worker: str
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Append a line to a run's ledger (flushed within a second, and before a verdict)."""

    uid: str
    line: Line


@dataclass(frozen=True, slots=True)
class PutManifest:
    """Store a composed manifest under ``cas/`` (it is about to be referred to)."""

    digest: Digest
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class PutBlob:
    """Store a small blob that travelled inside a result (it is about to be referred to)."""

    digest: Digest
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckBlobs:
    """Say which of these blobs are lost; answer with ``BlobsChecked``."""

    uid: str
    digests: frozenset[Digest]


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete those of these blobs whose bytes do not match their digest."""

    digests: frozenset[Digest]


@dataclass(frozen=True, slots=True)
class Finish:
    """Flush the run's ledger, write ``final``, then answer with ``Finalised``."""

    uid: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that a status shows of this run has changed."""

    uid: str


Command = (
    LookUp
    | Publish
    | Assign
    | CancelAttempt
    | Acknowledge
    | KeepAttempts
    | Append
    | PutManifest
    | PutBlob
    | CheckBlobs
    | Discard
    | Finish
    | Changed
)
