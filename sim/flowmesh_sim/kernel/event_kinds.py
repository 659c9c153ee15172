"""The names of events in a trace: fixed, since the hash of a trace identifies a simulation.

A class or an attribute may be renamed; its name in traces stays. Every new event of the machine
must be added here.
"""

from collections.abc import Mapping

from flowmesh_core.machine.events import (
    Amended,
    BlobsChecked,
    CancelRequested,
    ConditionEvaluated,
    ContentRevoked,
    ControlStalled,
    CordonChanged,
    Event,
    LookedUp,
    NamespaceLimitsChanged,
    PlacementDecided,
    PrewarmPlanChanged,
    ProtocolViolated,
    PublishDelayed,
    Published,
    PublishFailed,
    Repinned,
    ReservedPoolsChanged,
    RunFinalized,
    ServingPlanChanged,
    Submitted,
    TimeAdvanced,
    WeightsChanged,
    WorkerConnected,
    WorkerDisagreed,
    WorkerLost,
    WorkerSynced,
    WorkerTrustChanged,
)

KINDS: Mapping[type[Event], tuple[str, tuple[str, ...]]] = {
    Submitted: (
        "Submitted",
        (
            "uid",
            "plan",
            "created_s",
            "scopes",
            "artifacts",
            "restored",
            "quarantine_salts",
            "cancelled",
        ),
    ),
    LookedUp: (
        "LookedUp",
        ("key", "result", "scopes", "not_before_s", "min_trust", "found_in"),
    ),
    Published: ("Published", ("key", "result", "adopted", "attempt_id")),
    PublishFailed: ("PublishFailed", ("key", "failure", "attempt_id")),
    PublishDelayed: ("PublishDelayed", ("key", "failure", "attempt_id")),
    WorkerConnected: ("WorkerConnected", ("hello", "generations")),
    WorkerSynced: ("WorkerSynced", ("name", "incarnation", "sync", "generations")),
    ProtocolViolated: ("ProtocolViolated", ("name", "problem", "pool")),
    WorkerDisagreed: ("WorkerDisagreed", ("name", "pool")),
    WorkerLost: ("WorkerLost", ("name", "reason")),
    WorkerTrustChanged: ("WorkerTrustChanged", ("name", "incarnation", "trust")),
    CordonChanged: ("Cordoned", ("workers",)),
    PrewarmPlanChanged: ("HeldOpen", ("workers",)),
    ServingPlanChanged: ("ServingPlanChanged", ("workers", "routers")),
    WeightsChanged: ("WeightsChanged", ("weights",)),
    ReservedPoolsChanged: ("ReservedPoolsChanged", ("pools",)),
    NamespaceLimitsChanged: ("NamespaceLimitsChanged", ("limits",)),
    PlacementDecided: ("Decided", ("decision",)),
    BlobsChecked: ("BlobsChecked", ("uid", "missing")),
    ConditionEvaluated: ("ConditionEvaluated", ("uid", "number", "verdict")),
    Amended: ("Amended", ("uid", "changes")),
    Repinned: ("Repinned", ("run", "key", "versions")),
    CancelRequested: ("CancelRequested", ("uid", "reason")),
    RunFinalized: ("Finalised", ("uid",)),
    TimeAdvanced: ("Ticked", ()),
    ContentRevoked: ("ContentRevoked", ("identities", "revoked_s", "namespace")),
    ControlStalled: ("ControlStalled", ()),
}
"""By event class: its kind, and the names of its fields in traces."""


def kind_of(event: Event) -> str:
    """Returns the name of an event in traces."""
    return KINDS[type(event)][0]
