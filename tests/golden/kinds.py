"""Fixed names of what goldens hold, whatever the classes and attributes of the code are called.

A class that is renamed or moved changes a key of these tables and nothing else; a golden that was
recorded before stays valid. How a value is written:

- Classes in ``FIELDS`` are written field by field under the names given here, in the order in which
  the class declares them: the names stand for positions, so an attribute may be renamed freely, but
  a field that is added must be added here too (at the end of the class and of the names, with a
  default, where goldens are to stay valid). These are events, commands and all that only lives
  inside the control plane. Among them are dataclasses (``Decision``, ``Failure``,
  ``ScopePlan``, ``Settings``), which msgspec would write by attribute name: it knows no other name.
- Every other class is a message of the worker protocol or a stored record (``Plan``,
  ``ActionResult``, ``Artifact``, ``Assignment``, ``Hello``, ``Sync``, lines of the ledger, ...), or
  leaves unset fields out (``Rejection``), and is written as msgspec writes it, by attribute name;
  whoever renames such an attribute of a release keeps its name with ``msgspec.field(name=...)``.
  ``Book``, a dataclass, is a stored record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowmesh_api.v1.why import UtilityTerms
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.errors import Failure
from flowmesh_core.fleet.snapshot import Decision, Placement
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.settings import Settings
from flowmesh_core.sharing.scopes import ScopePlan


@dataclass(frozen=True)
class Start:
    """What a machine of a golden begins with, besides figures, which decide nothing.

    Attributes:
        catalog: a key of ``replaying.CATALOGS``.
        model: the stored form of the cost model.
    """

    epoch: int
    catalog: str
    settings: Settings
    model: str
    book: FabricAccount
    billed: Mapping[str, int] = field(default_factory=dict)
    unsettled: Mapping[str, int] = field(default_factory=dict)
    paid: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    recovering_until_s: float = 0.0


START = "machine"
"""The kind of a line at which a new machine takes over."""

EVENTS: Mapping[type, str] = {
    e.Submitted: "submitted",
    e.LookedUp: "looked-up",
    e.Published: "published",
    e.PublishFailed: "publish-failed",
    e.PublishDelayed: "publish-delayed",
    e.WorkerConnected: "worker-connected",
    e.WorkerSynced: "worker-synced",
    e.ProtocolViolated: "protocol-violated",
    e.WorkerDisagreed: "worker-disagreed",
    e.WorkerLost: "worker-lost",
    e.WorkerTrustChanged: "worker-trust-changed",
    e.CordonChanged: "cordoned",
    e.PrewarmPlanChanged: "held-open",
    e.WeightsChanged: "weights-changed",
    e.ReservedPoolsChanged: "reserved-pools-changed",
    e.NamespaceLimitsChanged: "namespace-limits-changed",
    e.ServingPlanChanged: "serving-plan-changed",
    e.PlacementDecided: "decided",
    e.BlobsChecked: "blobs-checked",
    e.ConditionEvaluated: "condition-evaluated",
    e.Amended: "amended",
    e.Repinned: "repinned",
    e.CancelRequested: "cancel-requested",
    e.ContentRevoked: "content-revoked",
    e.RunFinalized: "finalised",
    e.TimeAdvanced: "ticked",
    e.ControlStalled: "control-stalled",
}

COMMANDS: Mapping[type, str] = {
    c.LookUp: "look-up",
    c.Publish: "publish",
    c.Assign: "assign",
    c.CancelAttempt: "cancel-attempt",
    c.Prewarm: "hold-open",
    c.Serve: "serve",
    c.Acknowledge: "acknowledge",
    c.ConfirmAttempts: "keep-attempts",
    c.DrainWorker: "drain-worker",
    c.AppendLedgerLine: "append",
    c.AttemptSettled: "settled",
    c.PutManifest: "put-manifest",
    c.PutBlob: "put-blob",
    c.CheckBlobs: "check-blobs",
    c.DeleteCorruptBlobs: "discard",
    c.CompareContent: "compare-content",
    c.EvaluateCondition: "evaluate-condition",
    c.FinalizeRun: "finish",
    c.RunChanged: "changed",
}

FIELDS: Mapping[type, tuple[str, ...]] = {
    Start: (
        "epoch",
        "catalog",
        "settings",
        "model",
        "book",
        "billed",
        "unsettled",
        "paid",
        "recovering_until_s",
    ),
    Settings: (
        "watchdog_s",
        "sync_window_s",
        "poison_losses",
        "repairs",
        "backoff_factor",
        "unplaceable_after_s",
        "publish_patience_s",
        "result_ttl_s",
        "replicas",
        "replica_factor",
        "replica_after_s",
        "tenant_weights",
        "results_waiting_max",
        "violations_max",
        "pools_are_declared",
    ),
    # -- events
    e.Submitted: (
        "uid",
        "plan",
        "created_s",
        "scopes",
        "artifacts",
        "restored",
        "bumps",
        "cancelled",
    ),
    e.LookedUp: ("key", "result", "scopes", "not_before_s", "min_trust", "found_in"),
    e.Published: ("key", "result", "adopted", "attempt_id"),
    e.PublishFailed: ("key", "failure", "attempt_id"),
    e.PublishDelayed: ("key", "failure", "attempt_id"),
    e.WorkerConnected: ("hello", "generations"),
    e.WorkerSynced: ("name", "incarnation", "sync", "generations"),
    e.ProtocolViolated: ("name", "problem", "pool"),
    e.WorkerDisagreed: ("name", "pool"),
    e.WorkerLost: ("name", "reason"),
    e.WorkerTrustChanged: ("name", "incarnation", "trust"),
    e.CordonChanged: ("workers",),
    e.WeightsChanged: ("weights",),
    e.ReservedPoolsChanged: ("pools",),
    e.NamespaceLimitsChanged: ("limits",),
    e.NamespaceLimits: ("user_code_calls", "nanousd_per_day", "storage_full", "workers"),
    e.PrewarmPlanChanged: ("workers",),
    e.ServingPlanChanged: ("workers", "routers"),
    e.PlacementDecided: ("decision",),
    e.BlobsChecked: ("uid", "missing"),
    e.ConditionEvaluated: ("uid", "number", "verdict"),
    e.Amended: ("uid", "changes"),
    e.Repinned: ("run", "key", "versions"),
    e.CancelRequested: ("uid", "reason"),
    e.ContentRevoked: ("identities", "revoked_s", "namespace"),
    e.RunFinalized: ("uid",),
    e.TimeAdvanced: (),
    e.ControlStalled: (),
    # -- commands
    c.LookUp: ("key", "scopes", "not_before_s", "min_trust", "uid"),
    c.Publish: ("key", "result", "replace", "not_before_s", "min_trust", "copy_from"),
    c.Assign: (
        "worker",
        "assignment",
        "secrets",
        "namespace",
        "generation",
        "read_scopes",
    ),
    c.CancelAttempt: ("worker", "attempt_id"),
    c.Prewarm: ("worker", "openings"),
    c.Serve: ("worker", "replicas", "routers"),
    c.Acknowledge: ("worker", "attempt_id"),
    c.ConfirmAttempts: ("worker", "keep"),
    c.DrainWorker: ("worker",),
    c.AppendLedgerLine: ("uid", "line"),
    c.AttemptSettled: (
        "attempt_id",
        "action_id",
        "engine",
        "worker",
        "pool",
        "outcome",
        "message",
        "assigned_s",
        "ended_s",
        "usage",
        "subscribers",
    ),
    c.PutManifest: ("digest", "manifest", "uid", "scope"),
    c.PutBlob: ("digest", "data", "uid", "scope"),
    c.CheckBlobs: ("uid", "digests", "read_scopes", "sizes"),
    c.DeleteCorruptBlobs: ("digests", "uid", "scopes"),
    c.CompareContent: ("result", "blobs", "uid", "scopes"),
    c.EvaluateCondition: ("uid", "number", "query"),
    c.FinalizeRun: ("uid",),
    c.RunChanged: ("uid",),
    # -- inside them
    e.ActionKey: ("scope", "action_id"),
    Failure: ("kind", "message", "remedy", "detail", "retry_after_s", "reason"),
    ScopePlan: (
        "publish",
        "lookup",
        "private",
        "salt",
        "ttl_s",
        "policy",
        "shares_prefixes",
        "unattributed",
        "min_trust",
        "inputs",
        "verify_sample",
        "verify_min_trust",
    ),
    Decision: ("placements", "rejections"),
    Placement: (
        "worker",
        "signature",
        "actions",
        "terms",
        "predicted_s",
        "reserve_nanousd",
        "candidates",
    ),
    UtilityTerms: (
        "throughput",
        "cost",
        "locality",
        "utility",
        "start_s",
        "finish_s",
        "nanousd",
    ),
}
