"""What can happen to the machine. Events are immutable facts; the control plane makes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowmesh_core.errors import Failure
from flowmesh_core.fleet.snapshot import Decision
from flowmesh_core.graph.plan import Plan
from flowmesh_core.protocol.messages import Hello, Sync
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.run.ledger import Line
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class ActionKey:
    """An action in the scope that it publishes to: what is in flight once."""

    scope: str
    action_id: Digest


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run was accepted; its ``spec`` and ``pins`` are written.

    Attributes:
        artifacts: the content of every ``cas:`` reference in the plan, already verified.
        restored: ledger lines of an unfinished run that is taken up again.
    """

    uid: str
    plan: Plan
    created_s: float
    scopes: ScopePlan
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    restored: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The answer to ``LookUp``: the unexpired published result, or None."""

    key: ActionKey
    result: ActionResult | None


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to ``Publish``: what stands in the store now.

    Attributes:
        adopted: another publication had been there first, and ``result`` is that one.
    """

    key: ActionKey
    result: ActionResult
    adopted: bool


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The store refused a publication for good (it was retried where that helps)."""

    key: ActionKey
    failure: Failure


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    """A worker said everything about itself."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class WorkerSynced:
    """A worker said what has changed."""

    name: str
    incarnation: str
    sync: Sync


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker has not synchronised within the watchdog, or its process is known to be dead."""

    name: str
    reason: str = "no synchronisation within the watchdog"


@dataclass(frozen=True, slots=True)
class Decided:
    """The scheduler's decision on the machine's last snapshot."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class BlobsChecked:
    """The answer to ``CheckBlobs``: which of the digests are lost."""

    uid: str
    missing: frozenset[Digest]


@dataclass(frozen=True, slots=True)
class Amended:
    """A user changed ``suspend``, ``priority``, ``budgetNanousd`` or ``deadlineS`` of a run."""

    uid: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user wants a run to stop."""

    uid: str
    reason: str = "cancelled by the user"


@dataclass(frozen=True, slots=True)
class Finalised:
    """``final`` is written; the run may be forgotten after the status was shown."""

    uid: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed: deadlines, backoffs, watchdogs of attempts, recovery's window."""


Event = (
    Submitted
    | LookedUp
    | Published
    | PublishFailed
    | WorkerConnected
    | WorkerSynced
    | WorkerLost
    | Decided
    | BlobsChecked
    | Amended
    | CancelRequested
    | Finalised
    | Ticked
)
