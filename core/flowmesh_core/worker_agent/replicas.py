"""Replicas of services: engine instances that are loaded, kept, and admit calls.

The control plane lists them (``Desired.replicas``); the list is a level, as the prewarm list, but a
hard one: what is listed is fetched and loaded before anything that is prewarmed, is not closed for
attempts, and its memory stays reserved (``pinned_memory``). Fetching and loading is what
``prewarm`` does for it. Calls never enter the agent: the hub reports how many there are.

A replica that leaves the list closes: the hub sends it no other call, and once its calls have ended
its instance is one like any other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import ServingReplica, ServingReplicaState
from flowmesh_core.protocol.validation import HALVINGS_MAX
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import CallsBusy
from flowmesh_core.worker_agent.hub import Hub
from flowmesh_core.worker_agent.instructions import (
    AdmitCalls,
    ClearTimer,
    PinInstance,
    SetTimer,
    UnpinInstance,
)
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.prewarm import Prewarmer
from flowmesh_core.worker_agent.reports import Reports
from flowmesh_core.worker_agent.state import AgentState, Instance
from flowmesh_core.worker_agent.transitions import (
    HubState,
    InstanceState,
    PrewarmState,
    ReplicaState,
    check_transition,
)

CALLS_END_WITHIN_S = 30.0
"""Calls that are in a replica when it leaves the list may take this long to end."""
TIMER = "replica"
REASON_CHARS_MAX = 200
NO_HUB = "this worker has no hub: start it with one, or use a pool whose workers have one"


@dataclass(slots=True, eq=False)
class Replica:
    """One replica.

    Attributes:
        instance: the engine instance that it pins; None while there is none.
        admitted: the hub, by number, and the instance that calls were last admitted to.
        units: work of its calls in this instance; ``call_s`` the seconds that they took for it.
        listed: whether the control plane wants it.
        reason: why it has failed, or what it waits for.
        halvings: how often its host ran out of memory, or others of its signature did before it
            was loaded: so often its calls at once are halved.
        code_failures: see ``PrewarmEntry``.
    """

    wanted: ServingReplica
    state: ReplicaState = ReplicaState.FETCHING
    instance: Instance | None = None
    admitted: tuple[int, int] | None = None
    units: int = 0
    listed: bool = True
    reason: str = ""
    halvings: int = 0
    code_failures: int = 0
    call_s: float = 0.0

    @property
    def id(self) -> str:
        """Its id."""
        return self.wanted.replica_id

    @property
    def signature(self) -> Digest:
        """The signature of its engine instance."""
        return self.wanted.opening.signature

    @property
    def calls(self) -> int:
        """How many calls are in it now."""
        return self.instance.calls.get(self.id, 0) if self.instance is not None else 0

    def move(self, state: ReplicaState) -> None:
        """Changes the state.

        Raises:
            InvariantError: the table does not allow it.
        """
        check_transition(self.state, state, f"replica {self.id}")
        self.state = state

    def report(self) -> ServingReplicaState:
        """Returns its state for the control plane."""
        reserved = self.instance.reservation if self.instance is not None else None
        return ServingReplicaState(
            replica_id=self.id,
            state=self.state.value,
            reason=self.reason,
            calls=self.calls,
            units=self.units,
            signature=self.signature,
            memory_mib=reserved.memory_mib if reserved else self.wanted.opening.memory_mib,
            token=self.wanted.opening.token,
            halvings=self.halvings,
            code_failures=self.code_failures,
            call_s=self.call_s,
        )


class Replicas:
    """Follows the list of replicas.

    Attributes:
        entries: by id, in the order of the list; closing ones last.
        hub: takes their calls.
    """

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        prewarmer: Prewarmer,
        reports: Reports,
        *,
        serves: bool,
    ) -> None:
        """Holds no replica at first.

        Args:
            state: attempts and engine instances.
            out: for instructions.
            prewarmer: fetches and loads.
            reports: what the worker reports.
            serves: whether the worker has a hub; without one every replica fails.
        """
        self._state = state
        self._out = out
        self._prewarmer = prewarmer
        self._reports = reports
        self._serves = serves
        self.hub = Hub(out)
        self.entries: dict[str, Replica] = {}

    def replace(
        self, wanted: Iterable[ServingReplica], end_within_s: float = CALLS_END_WITHIN_S
    ) -> None:
        """Replaces the list; those that are off it close.

        Args:
            wanted: all replicas; one that is known continues.
            end_within_s: how long calls in those that are off it may take to end.
        """
        before, self.entries = self.entries, {}
        for one in wanted:
            known = before.pop(one.replica_id, None)
            if known is not None and known.signature == one.opening.signature:
                self._resume(known, one)
                self.entries[one.replica_id] = known
            else:
                if known is not None:  # the same id for another engine
                    self._unpin(known)
                    self._end(known)
                self.entries[one.replica_id] = Replica(one, halvings=_halvings(one))
        listed = list(self.entries.values())
        for replica in before.values():
            self._close(replica, end_within_s)
        self._prewarmer.pin(r.wanted.opening for r in listed if self._serves)
        self._reports.replicas_changed()

    def busy(self, event: CallsBusy) -> None:
        """Records how many calls are in a replica; a closing one ends with the last."""
        replica = self.entries.get(event.replica_id)
        if replica is None or replica.instance is None:
            return
        replica.instance.calls[replica.id] = max(0, event.calls)
        replica.units = max(replica.units, event.units)
        replica.call_s = max(replica.call_s, event.call_s)
        replica.instance.last_used_s = self._out.now_s
        self._reports.calls_changed()
        if replica.state is ReplicaState.CLOSING and not replica.calls:
            self._end(replica)

    def hub_exited(self, hub_id: int, reason: str) -> None:
        """Records that all calls are lost, and has the hub started again."""
        if self.hub.exited(hub_id, _line(reason)):
            for replica in list(self.entries.values()):
                if replica.instance is not None:
                    replica.instance.calls[replica.id] = 0
                if not replica.listed:
                    self._end(replica)

    def instance_ended(self, instance: Instance) -> None:
        """Takes an instance that is gone from the replicas that pinned it."""
        for replica in list(self.entries.values()):
            if replica.instance is instance:
                replica.instance, replica.admitted = None, None
                replica.units, replica.call_s = 0, 0.0
                failure = instance.failure
                if failure is not None and failure.kind == FailureKind.OUT_OF_MEMORY:
                    replica.halvings = min(replica.halvings + 1, HALVINGS_MAX)
                if not replica.listed:
                    self._end(replica)

    def end_now(self, replica_id: str) -> None:
        """Ends a closing replica whose calls have taken too long."""
        replica = self.entries.get(replica_id)
        if replica is not None and not replica.listed:
            self._end(replica)

    def advance(self) -> None:
        """Pins instances, admits calls, and moves each replica to the state that it is in."""
        if not self.entries and self.hub.state is HubState.STOPPED:
            return
        self.hub.need(needed=self._serves and bool(self.entries))
        for replica in self.entries.values():
            if replica.listed:
                self._advance(replica)

    @property
    def is_empty(self) -> bool:
        """Whether none is left, so that a worker that drains may leave."""
        return not self.entries

    def states(self) -> tuple[ServingReplicaState, ...]:
        """Returns every replica as it is reported."""
        reports = tuple(replica.report() for replica in self.entries.values())
        if self._serves:
            return reports
        return tuple(msgspec.structs.replace(r, memory_mib=0) for r in reports)

    # -- one replica -----------------------------------------------------------------------------

    def _advance(self, replica: Replica) -> None:
        if not self._serves:
            self._show(replica, ReplicaState.FAILED, NO_HUB)
            return
        entry = self._prewarmer.entries[replica.signature]
        instance = self._pin(replica)
        if instance is None:
            if entry.state is PrewarmState.FAILED:
                reason = entry.failure.message if entry.failure is not None else ""
                replica.code_failures = entry.code_failures
                self._show(replica, ReplicaState.FAILED, _line(reason))
            elif entry.state is PrewarmState.FETCHED:
                self._show(replica, ReplicaState.LOADING, "waits for memory of this worker")
            else:
                self._show(replica, ReplicaState.FETCHING)
        elif instance.state is not InstanceState.READY:
            self._show(replica, ReplicaState.LOADING)
        elif not self.hub.is_ready:
            self._show(replica, ReplicaState.LOADING, self.hub.reason or "waits for the hub")
        else:
            self._admit(replica, instance)
            replica.code_failures = 0
            self._show(replica, ReplicaState.READY)

    def _pin(self, replica: Replica) -> Instance | None:
        """Returns the instance that the replica pins, after it has pinned a new one."""
        if replica.instance is None and self._state.has_instance(replica.signature):
            replica.instance = instance = self._state.instances[replica.signature]
            instance.calls[replica.id] = 0
            self._out.add(PinInstance(instance.id, replica.wanted))
        return replica.instance

    def _admit(self, replica: Replica, instance: Instance) -> None:
        admitted = (self.hub.number, instance.id)
        if replica.admitted != admitted:
            replica.admitted = admitted
            self._out.add(AdmitCalls(instance.id, replica.wanted, replica.halvings))

    def _resume(self, replica: Replica, wanted: ServingReplica) -> None:
        if not replica.listed:
            replica.listed, replica.admitted = True, None
            self._out.add(ClearTimer((TIMER, replica.id)))
        elif replica.wanted != wanted:
            replica.admitted = None  # the hub gets its new limits and salts
        replica.halvings = max(replica.halvings, _halvings(wanted))
        replica.wanted = wanted

    def _close(self, replica: Replica, end_within_s: float) -> None:
        self._unpin(replica)
        if not replica.calls:
            self._end(replica)
            return
        self.entries[replica.id] = replica
        if replica.listed:
            replica.listed = False
            replica.move(ReplicaState.CLOSING)
            self._out.add(SetTimer((TIMER, replica.id), self._out.now_s + end_within_s))

    def _unpin(self, replica: Replica) -> None:
        if replica.listed and replica.instance is not None:
            self._out.add(UnpinInstance(replica.instance.id, replica.id))

    def _end(self, replica: Replica) -> None:
        """Lets go of the instance: from now on it is one like any other."""
        self.entries.pop(replica.id, None)
        if not replica.listed:
            self._out.add(ClearTimer((TIMER, replica.id)))
        if replica.instance is not None:
            replica.instance.calls.pop(replica.id, None)
            replica.instance.last_used_s = self._out.now_s
            replica.instance = None
        replica.move(ReplicaState.GONE)
        self._reports.replicas_changed()

    def _show(self, replica: Replica, state: ReplicaState, reason: str = "") -> None:
        if replica.state is state and replica.reason == reason:
            return
        if replica.state is not state:
            for step in _steps(replica.state, state):
                replica.move(step)
        replica.reason = reason
        self._reports.replicas_changed()


def _steps(before: ReplicaState, after: ReplicaState) -> tuple[ReplicaState, ...]:
    """Returns the states on the way: what is open already was loaded by something else."""
    skips = before is not ReplicaState.LOADING and after is ReplicaState.READY
    return (ReplicaState.LOADING, after) if skips else (after,)


def _halvings(wanted: ServingReplica) -> int:
    return min(wanted.halvings, HALVINGS_MAX)


def _line(text: str) -> str:
    """Returns the first line of a text, as a report may have it."""
    line = next(iter(text.splitlines()), "")
    return "".join(c if c.isprintable() else " " for c in line)[:REASON_CHARS_MAX]
