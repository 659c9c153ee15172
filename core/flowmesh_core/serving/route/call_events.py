"""What happens to a router's calls, and what the router does about it: see ``call_router``."""

import msgspec

from flowmesh_core.protocol.serving import ReplicaLoad

PIECE = "piece"
"""The outcome of a reply that is a part of a stream."""
NO_REPLICA = "no-replica"
PATH_NOT_SERVED = "path-not-served"


class CallArrived(msgspec.Struct, frozen=True, tag=True):
    """A client asks.

    Attributes:
        call_id: unique among all routers.
        service: ``namespace/name``.
        path: of OpenAI's API.
        tenant: the caller's namespace.
        budget_s: what remains until its deadline.
        key: that its replica is chosen by; empty for none.
    """

    call_id: str
    service: str
    path: str
    tenant: str
    budget_s: float
    key: str = ""


class LoadsReported(msgspec.Struct, frozen=True, tag=True):
    """A hub has listed all its replicas that take calls."""

    hub: str
    loads: tuple[ReplicaLoad, ...]


class CallReplied(msgspec.Struct, frozen=True, tag=True):
    """A hub has answered: ``PIECE``, an outcome of ``protocol.serving``, or why it refuses."""

    hub: str
    call_id: str
    outcome: str


class CallCancelled(msgspec.Struct, frozen=True, tag=True):
    """The client is gone, or has waited for too long."""

    call_id: str


class HubLost(msgspec.Struct, frozen=True, tag=True):
    """The connection to a hub has ended."""

    hub: str


class SendCall(msgspec.Struct, frozen=True, tag=True):
    """Send a call to a replica."""

    hub: str
    call_id: str
    replica_id: str


class AbortCall(msgspec.Struct, frozen=True, tag=True):
    """Have a hub drop a call."""

    hub: str
    call_id: str


class AnswerCall(msgspec.Struct, frozen=True, tag=True):
    """Pass a reply on to the client; it is the call's last unless its outcome is ``PIECE``."""

    call_id: str
    outcome: str


class RefuseCall(msgspec.Struct, frozen=True, tag=True):
    """Answer with an error before anything was computed for the client.

    Attributes:
        reason: of ``protocol.serving`` or of a verdict of admission.
        retry_after_s: when the same call may be admitted; 0 where that is not known.
    """

    call_id: str
    reason: str
    retry_after_s: float = 0.0


RouterEvent = CallArrived | LoadsReported | CallReplied | CallCancelled | HubLost
RouterCommand = SendCall | AbortCall | AnswerCall | RefuseCall
