"""Events: what can happen to the machine. They are immutable; the control plane makes them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.errors import Failure
from flowmesh_core.fleet.snapshot import Decision
from flowmesh_core.graph.conditions import ConditionVerdict
from flowmesh_core.graph.plan import Plan
from flowmesh_core.protocol.messages import Hello, RouterAddress, ServingReplica, Sync
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.units import Digest


class ActionKey(msgspec.Struct, frozen=True, gc=False):
    """An action in the scope that it publishes to; at most one of a key is in flight."""

    scope: str
    action_id: Digest


class Submitted(msgspec.Struct, frozen=True):
    """A run was accepted; its ``spec`` and ``pins`` are written.

    Attributes:
        artifacts: the content of every ``cas:`` reference in the plan, already verified.
        restored: ledger lines of an unfinished run that is restored.
        quarantine_salts: signature classes that were in quarantine when the run was accepted.
        cancelled: why it should only end; empty where it goes on. Then nothing of it is evaluated.
    """

    uid: str
    plan: Plan
    created_s: float
    scopes: ScopePlan
    artifacts: Mapping[str, Artifact] = {}
    restored: tuple[Line, ...] = ()
    quarantine_salts: Mapping[Digest, int] = {}
    cancelled: str = ""


class LookedUp(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The answer to ``LookUp``: the unexpired published result, or None.

    Attributes:
        scopes: as in the command; where empty, it answers every look-up of the key.
        not_before_s, min_trust: as in the command.
        found_in: the scope that has the result; empty where it is that of the key.
    """

    key: ActionKey
    result: ActionResult | None
    scopes: tuple[str, ...] = ()
    not_before_s: float = 0.0
    min_trust: int = 0
    found_in: str = ""


class Published(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The answer to ``Publish``: the result that is in the store now.

    Attributes:
        adopted: another publication was first, and ``result`` is that one.
        attempt_id: the attempt whose result was to be published; where empty it is that of
            ``result``, or any of the action.
    """

    key: ActionKey
    result: ActionResult
    adopted: bool
    attempt_id: str = ""


class PublishFailed(msgspec.Struct, frozen=True, gc=False):
    """The store refused a publication for good (it was retried where that helps).

    Attributes:
        attempt_id: the attempt whose result was to be published; any of the action where empty.
    """

    key: ActionKey
    failure: Failure
    attempt_id: str = ""


class PublishDelayed(msgspec.Struct, frozen=True, gc=False):
    """The store has no space for a publication; it is retried while the machine waits for it.

    The machine stops waiting after ``Settings.publish_patience_s``.

    Attributes:
        attempt_id: the attempt whose result is to be published; any of the action where empty.
    """

    key: ActionKey
    failure: Failure
    attempt_id: str = ""


class WorkerConnected(msgspec.Struct, frozen=True):
    """A worker reported its full state.

    Attributes:
        hello: names only attempts that the worker was given.
        generations: of those attempts: the generation of the result that each would publish.
    """

    hello: Hello
    generations: Mapping[str, int] = {}


class WorkerSynced(msgspec.Struct, frozen=True, gc=False):
    """A worker reported what has changed.

    Attributes:
        sync: names only attempts that the worker was given.
        generations: of its ended attempts, as in :class:`WorkerConnected`.
    """

    name: str
    incarnation: str
    sync: Sync
    generations: Mapping[str, int] = {}


class ProtocolViolated(msgspec.Struct, frozen=True, gc=False):
    """A worker did what an honest one never does.

    Items of its message were dropped, or it reported content that is not what its identity says.

    Attributes:
        problem: the first of the items, or what is wrong with the content.
        pool: the worker's, where it may have left since; else empty.
    """

    name: str
    problem: str
    pool: str = ""


class WorkerDisagreed(msgspec.Struct, frozen=True, gc=False):
    """A result of a worker was not repeated by two other workers, who agree with each other.

    Attributes:
        pool: the worker's; it may have left since.
    """

    name: str
    pool: str


class WorkerLost(msgspec.Struct, frozen=True):
    """A worker has not synchronised within the watchdog, or its process is known to be dead."""

    name: str
    reason: str = "no synchronisation within the watchdog"


class WorkerTrustChanged(msgspec.Struct, frozen=True):
    """The pool of a connected worker is trusted more, or less, than when the worker joined."""

    name: str
    incarnation: str
    trust: int


class CordonChanged(msgspec.Struct, frozen=True):
    """The names of all workers that must not get anything new, connected or not.

    A level and not an edge: a worker that is no longer named takes work again.
    """

    workers: frozenset[str]


class WeightsChanged(msgspec.Struct, frozen=True):
    """The weights of tenants in fair shares; one that is not named has that of the settings.

    A level and not an edge, as the next one.
    """

    weights: dict[str, float]


class ReservedPoolsChanged(msgspec.Struct, frozen=True):
    """The reserved pools, and the namespaces that each takes actions of."""

    pools: dict[str, frozenset[str]]


class NamespaceLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits on the attempts of a namespace; None where there is none.

    0 is none at all.

    Attributes:
        user_code_calls: attempts of user code at once.
        nanousd_per_day: what its runs pay in a day; then new attempts wait.
        storage_full: why new attempts wait until the namespace stores less; empty where they need
            not.
        workers: workers that run its attempts at once.
    """

    user_code_calls: int | None = None
    nanousd_per_day: int | None = None
    storage_full: str = ""
    workers: int | None = None


class NamespaceLimitsChanged(msgspec.Struct, frozen=True):
    """The limits of namespaces; one that is not named has none.

    A level and not an edge.
    """

    limits: dict[str, NamespaceLimits]


class PrewarmPlanChanged(msgspec.Struct, frozen=True):
    """Which signatures' engines each worker should load ahead of work, in order of urgency.

    A level and not an edge: a worker that is not named prewarms nothing.
    """

    workers: dict[str, tuple[Digest, ...]]


class ServingPlanChanged(msgspec.Struct, frozen=True):
    """Which replicas of services each worker holds, in the order of loading, and all routers.

    A level and not an edge: a worker that is not named holds none.
    """

    workers: dict[str, tuple[ServingReplica, ...]]
    routers: tuple[RouterAddress, ...] = ()


class PlacementDecided(msgspec.Struct, frozen=True, gc=False):
    """The scheduler's decision on the machine's last snapshot."""

    decision: Decision


class BlobsChecked(msgspec.Struct, frozen=True):
    """The answer to ``CheckBlobs``: which of the digests are lost."""

    uid: str
    missing: frozenset[Digest]


class ConditionEvaluated(msgspec.Struct, frozen=True):
    """The answer to ``EvaluateCondition``."""

    uid: str
    number: int
    verdict: ConditionVerdict


class Amended(msgspec.Struct, frozen=True):
    """A user changed ``suspend``, ``priority``, ``budgetNanousd`` or ``deadlineS`` of a run."""

    uid: str
    changes: Mapping[str, Any]


class Repinned(msgspec.Struct, frozen=True):
    """A user moved a run to the newest versions of its engines; its new pins are written.

    Attributes:
        run: the run with its new plan; ``restored`` are the lines of its ledger so far.
        key: of the record that has the new pins.
        versions: engine → from which to which version, for people.
    """

    run: Submitted
    key: str
    versions: Mapping[str, str]


class CancelRequested(msgspec.Struct, frozen=True):
    """A user wants a run to stop."""

    uid: str
    reason: str = "cancelled by the user"


class ContentRevoked(msgspec.Struct, frozen=True):
    """Content was revoked: runs that were accepted before do not use it any more.

    Attributes:
        identities: of the content, and of all that is known to be made from it.
        revoked_s: when; later runs are not concerned.
        namespace: whose runs are concerned; all where empty.
    """

    identities: frozenset[Digest]
    revoked_s: float
    namespace: str = ""


class RunFinalized(msgspec.Struct, frozen=True):
    """``final`` is written; the run may be forgotten after its status was published."""

    uid: str


class TimeAdvanced(msgspec.Struct, frozen=True):
    """Time has passed: deadlines, backoffs, watchdogs of attempts, recovery's window."""


class ControlStalled(msgspec.Struct, frozen=True):
    """The control plane stood still until now: it was stopped, or had no processor time."""


Event = (
    Submitted
    | LookedUp
    | Published
    | PublishFailed
    | PublishDelayed
    | WorkerConnected
    | WorkerSynced
    | ProtocolViolated
    | WorkerDisagreed
    | WorkerLost
    | WorkerTrustChanged
    | CordonChanged
    | WeightsChanged
    | ReservedPoolsChanged
    | NamespaceLimitsChanged
    | PrewarmPlanChanged
    | ServingPlanChanged
    | PlacementDecided
    | BlobsChecked
    | ConditionEvaluated
    | Amended
    | Repinned
    | CancelRequested
    | ContentRevoked
    | RunFinalized
    | TimeAdvanced
    | ControlStalled
)
