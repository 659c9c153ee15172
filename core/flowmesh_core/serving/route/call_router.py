"""A router's decisions about calls: events in, commands out.

A call is sent to a second replica, once, where the first is full or ends before it has answered
anything. So a call is computed at least once and answered at most once. The simulator runs this
machine; the router process makes the same decisions (``tests/flowmesh_serving/test_one_log.py``).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import FULL, LOST, UNKNOWN_REPLICA, ReplicaLoad
from flowmesh_core.serving.route.admission import OnLate, ServiceLoad, admit
from flowmesh_core.serving.route.call_events import (
    NO_REPLICA,
    PATH_NOT_SERVED,
    PIECE,
    AbortCall,
    AnswerCall,
    CallArrived,
    CallCancelled,
    CallReplied,
    HubLost,
    LoadsReported,
    RefuseCall,
    RouterCommand,
    RouterEvent,
    SendCall,
)
from flowmesh_core.serving.route.replica_choice import Candidate, choose_replica

TRIES = 2
"""How often a call is sent at most; the router process has the same rule."""
_NEWEST = 0.1
"""The weight of the newest call in the mean duration."""
RETRYABLE = (LOST, FULL, UNKNOWN_REPLICA)


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """What a service admits at one router.

    Attributes:
        max_in_flight: its calls at once.
        on_late: what becomes of calls that would be late.
        weights: of tenants; 1 where none is given.
    """

    max_in_flight: int
    on_late: OnLate = OnLate.SERVE
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Routed:
    hub: str
    candidate: Candidate


@dataclass(slots=True, eq=False)
class _Pending:
    call: CallArrived
    arrived_s: float
    tried: set[str] = field(default_factory=set)
    replica: _Routed | None = None
    has_answered: bool = False


@dataclass(slots=True)
class CallRouter:
    """All calls of one router.

    Attributes:
        limits: by service; one without limits admits every call.
    """

    limits: Mapping[str, AdmissionLimits] = field(default_factory=dict)
    _replicas: dict[str, dict[str, _Routed]] = field(default_factory=dict)
    _pending: dict[str, _Pending] = field(default_factory=dict)
    _in_flight: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _mean_s: dict[str, float] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return len(self._pending)

    def apply(self, event: RouterEvent, now_s: float) -> list[RouterCommand]:
        """Returns what to do about an event.

        Args:
            event: what has happened.
            now_s: the time, on a clock that never steps back.
        """
        match event:
            case CallArrived():
                return self._arrived(event, now_s)
            case LoadsReported():
                self._reported(event.hub, event.loads)
                return []
            case CallReplied():
                return self._replied(event, now_s)
            case CallCancelled():
                return self._cancelled(event.call_id)
            case HubLost():
                return self._lost(event.hub)

    def _arrived(self, call: CallArrived, now_s: float) -> list[RouterCommand]:
        refusal = self._refusal(call)
        if refusal is not None:
            return [refusal]
        pending = self._pending[call.call_id] = _Pending(call, now_s)
        self._in_flight[call.service][call.tenant] += 1
        sent = self._send(pending)
        if sent is not None:
            return [sent]
        served = {
            p for r in self._replicas.get(call.service, {}).values() for p in r.candidate.paths
        }
        self._forget(pending)
        return [RefuseCall(call.call_id, PATH_NOT_SERVED if served else NO_REPLICA)]

    def _refusal(self, call: CallArrived) -> RefuseCall | None:
        limits = self.limits.get(call.service)
        if limits is None:
            return None
        in_flight, replicas = self._in_flight[call.service], self._replicas.get(call.service, {})
        places = sum(r.candidate.calls_max for r in replicas.values())
        if not places:
            return None  # a missing replica is reported as such
        behind = max(0, sum(r.candidate.calls for r in replicas.values()) + 1 - places)
        predicted_s = self._mean_s.get(call.service, 0.0) * (1 + behind / places)
        load = ServiceLoad(
            limits.max_in_flight,
            in_flight,
            places,
            limits.weights,
            predicted_s=predicted_s,
            on_late=limits.on_late,
        )
        decided = admit(load, call.tenant, call.budget_s)
        if decided.accepted:
            return None
        return RefuseCall(call.call_id, decided.verdict, decided.retry_after_s)

    def _reported(self, hub: str, loads: tuple[ReplicaLoad, ...]) -> None:
        before = {
            r.candidate.replica_id: r
            for replicas in self._replicas.values()
            for r in replicas.values()
            if r.hub == hub
        }
        self._remove(hub)
        for load in loads:
            routed = before.get(load.replica_id) or _Routed(hub, Candidate(load.replica_id, (), 1))
            candidate = routed.candidate
            candidate.paths = load.paths
            candidate.calls_max = max(1, load.calls_max)
            candidate.reported = load.running + load.queued
            candidate.own_reported = candidate.own
            self._replicas.setdefault(load.service, {})[load.replica_id] = routed

    def _replied(self, event: CallReplied, now_s: float) -> list[RouterCommand]:
        pending = self._pending.get(event.call_id)
        if pending is None or pending.replica is None or pending.replica.hub != event.hub:
            return []
        if event.outcome == PIECE:
            pending.has_answered = True
            return [AnswerCall(event.call_id, PIECE)]
        self._detach(pending)
        if event.outcome in RETRYABLE and not pending.has_answered:
            return [self._retry(pending, event.outcome)]
        self._forget(pending)
        service, seconds = pending.call.service, now_s - pending.arrived_s
        mean_s = self._mean_s.get(service, seconds)
        self._mean_s[service] = mean_s + _NEWEST * (seconds - mean_s)
        return [AnswerCall(event.call_id, event.outcome)]

    def _retry(self, pending: _Pending, outcome: str) -> RouterCommand:
        sent = self._send(pending) if len(pending.tried) < TRIES else None
        if sent is None:
            self._forget(pending)
            return RefuseCall(pending.call.call_id, outcome)
        return sent

    def _send(self, pending: _Pending) -> SendCall | None:
        call = pending.call
        replicas = self._replicas.get(call.service, {})
        chosen = choose_replica(
            (r.candidate for r in replicas.values()),
            call.path,
            pending.tried,
            request=call.call_id,
            key=call.key,
        )
        if chosen is None:
            return None
        pending.tried.add(chosen.replica_id)
        pending.replica = replicas[chosen.replica_id]
        chosen.own += 1
        return SendCall(pending.replica.hub, call.call_id, chosen.replica_id)

    def _cancelled(self, call_id: str) -> list[RouterCommand]:
        pending = self._pending.get(call_id)
        if pending is None:
            return []
        hub = pending.replica.hub if pending.replica is not None else ""
        self._detach(pending)
        self._forget(pending)
        return [AbortCall(hub, call_id)] if hub else []

    def _lost(self, hub: str) -> list[RouterCommand]:
        self._remove(hub)
        commands: list[RouterCommand] = []
        for pending in list(self._pending.values()):
            if pending.replica is None or pending.replica.hub != hub:
                continue
            self._detach(pending)
            if pending.has_answered:
                self._forget(pending)
                commands.append(AnswerCall(pending.call.call_id, LOST))
            else:
                commands.append(self._retry(pending, LOST))
        return commands

    def _remove(self, hub: str) -> None:
        for service, replicas in list(self._replicas.items()):
            for replica_id in [i for i, r in replicas.items() if r.hub == hub]:
                del replicas[replica_id]
            if not replicas:
                del self._replicas[service]

    def _forget(self, pending: _Pending) -> None:
        call = pending.call
        del self._pending[call.call_id]
        counts = self._in_flight[call.service]
        counts[call.tenant] -= 1
        if not counts[call.tenant]:
            del counts[call.tenant]

    @staticmethod
    def _detach(pending: _Pending) -> None:
        if pending.replica is not None:
            pending.replica.candidate.own -= 1
            pending.replica = None
