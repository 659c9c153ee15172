"""Invariants of a worker agent after every event; checked in tests and in the simulator."""

from collections import Counter

from flowmesh_core.errors import InvariantError
from flowmesh_core.worker_agent.instructions import (
    CloseHost,
    FetchInputs,
    Instruction,
    RunAttempt,
    SleepHost,
    StartHost,
)
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_core.worker_agent.replicas import Replica
from flowmesh_core.worker_agent.state import ASLEEP
from flowmesh_core.worker_agent.transitions import (
    AttemptPhase,
    HubState,
    InstanceState,
    PrewarmState,
    ReplicaState,
)

_WAITS_IN_QUEUE = (AttemptPhase.LOADING, AttemptPhase.QUEUED)


def check_agent(agent: WorkerAgent, done: list[Instruction] | None = None) -> None:
    """Returns if all invariants hold.

    Args:
        agent: after an event.
        done: the instructions of that event.

    Raises:
        InvariantError: names the first invariant that does not hold.
    """
    for broken in (
        _memory(agent),
        _attempts(agent),
        _instances(agent),
        _reports(agent),
        _prewarms(agent),
        _replicas(agent, done or []),
        _pinned_memory(agent),
        _sleeping(agent, done or []),
        _draining(agent, done or []),
    ):
        if broken:
            raise InvariantError(f"worker agent: {broken}")


def _memory(agent: WorkerAgent) -> str:
    host, devices = agent.memory.free_mib
    if host < 0 or any(free < 0 for free in devices):
        return (
            f"more memory is reserved than there is: free are {host} MiB, on devices {devices} MiB"
        )
    known = [instance.reservation for instance in agent.state.instances.values()]
    known += [*agent.standby.reservations, *agent.instances.pinned.retained.values()]
    unknown = agent.memory.reserved_beside(known)
    if any(unknown):
        return f"memory is reserved for nothing, or used without being reserved: {unknown} MiB"
    return ""


def _attempts(agent: WorkerAgent) -> str:
    """Returns what is wrong with where attempts are: each is in the one place of its phase."""
    state = agent.state
    instances = state.instances.values()
    waiting = Counter(a.id for a in state.waiting)
    queued = Counter(a.id for i in instances for _, _, a in i.queue if not a.ended)
    running = Counter(a.id for i in instances for a in i.running.values() if not a.ended)
    for attempt in state.attempts.values():
        found = (waiting[attempt.id], queued[attempt.id], running[attempt.id])
        phase = attempt.phase
        expected = (
            int(phase is AttemptPhase.WAITING),
            int(phase in _WAITS_IN_QUEUE),
            int(phase is AttemptPhase.RUNNING),
        )
        if found != expected:
            return (
                f"attempt {attempt.id} is {phase.value}: expected (waiting, queued, running) to be "
                f"{expected}, not {found}"
            )
    if not state.attempts.keys() >= {*waiting, *queued, *running}:
        return "an attempt that is not known waits or runs"
    return ""


def _instances(agent: WorkerAgent) -> str:
    for instance in agent.state.instances.values():
        if len(instance.running) > instance.capacity:
            return f"engine instance {instance.id} runs more than its capacity"
        busy = instance.running or instance.has_queue() or instance.retained
        if instance.state is InstanceState.CLOSING and busy:
            return f"engine instance {instance.id} is closing and not idle"
    return ""


def _reports(agent: WorkerAgent) -> str:
    if set(agent.reports.progress) != set(agent.state.attempts):
        return "the reported attempts differ from those in the state"
    return ""


def _prewarms(agent: WorkerAgent) -> str:
    fetches = [e for e in agent.prewarmer.entries.values() if e.pending and e.remote]
    if len(fetches) > 1:
        return "two components are fetched from the store at once, ahead of work"
    for signature, entry in agent.prewarmer.entries.items():
        if entry.state is PrewarmState.OPEN and signature not in agent.state.instances:
            return f"the prewarm of {entry.spec.engine} is open without an engine instance"
    return ""


def _replicas(agent: WorkerAgent, done: list[Instruction]) -> str:
    """Returns what is wrong with replicas, or with the instances that they pin."""
    pins: dict[int, set[str]] = {}
    for replica in agent.replicas.entries.values():
        broken = _replica(replica, hub_is_ready=agent.replicas.hub.is_ready)
        if broken:
            return f"replica {replica.id} {broken}"
        if replica.instance is not None:
            pins.setdefault(replica.instance.id, set()).add(replica.id)
    closed = {i.instance_id for i in done if isinstance(i, CloseHost)} & pins.keys()
    if closed:
        return f"pinned engine instances are closed: {sorted(closed)}"
    for found in agent.state.instances.values():
        if found.calls.keys() != pins.get(found.id, set()):
            return f"engine instance {found.id} has calls of replicas that do not pin it"
    stopped = agent.replicas.hub.state is HubState.STOPPED
    if agent.prewarmer.pinned if stopped else not agent.replicas.entries:
        return "there is a hub without replicas, or replicas without a hub"
    return ""


def _replica(replica: Replica, *, hub_is_ready: bool) -> str:
    instance = replica.instance
    if instance is not None and instance.state in (InstanceState.CLOSING, InstanceState.GONE):
        return f"pins an engine instance that is {instance.state.value}"
    loaded = instance is not None and instance.state is InstanceState.READY
    if replica.state is ReplicaState.READY and not (loaded and hub_is_ready):
        return "is ready without an engine instance or a hub"
    if replica.listed is (replica.state is ReplicaState.CLOSING):
        return f"is {replica.state.value}, and listed is {replica.listed}"
    return ""


def _pinned_memory(agent: WorkerAgent) -> str:
    """Returns which pinned signature has lost the memory that it had; none may."""
    pinned = agent.instances.pinned
    if not pinned.retained.keys() <= pinned.signatures:
        return "memory is retained for a signature that is not pinned"
    for signature in pinned.reserved:
        if (signature in agent.state.instances) is (signature in pinned.retained):
            return f"the memory of pinned signature {signature} is not reserved once"
    return ""


def _sleeping(agent: WorkerAgent, done: list[Instruction]) -> str:
    """Returns what is wrong with instances that are asleep."""
    sleeping, by_id = agent.instances.sleeping, agent.state.by_id
    if sleeping.used_mib > sleeping.limit_mib:
        return f"instances asleep take {sleeping.used_mib} MiB of the host: more than the limit"
    for instance in agent.state.instances.values():
        if instance.state not in ASLEEP:
            continue
        busy = instance.running or instance.has_queue() or instance.retained or instance.calls
        if busy:
            return f"engine instance {instance.id} is {instance.state.value} and not idle"
        is_asleep = instance.state is InstanceState.ASLEEP
        if is_asleep and instance.reservation != sleeping.left(instance):
            return f"engine instance {instance.id} is asleep and has not given its memory back"
    for one in done:
        found = by_id.get(one.instance_id) if isinstance(one, RunAttempt | SleepHost) else None
        if found is None:
            continue
        if isinstance(one, RunAttempt) and found.state is not InstanceState.READY:
            return f"an attempt runs in engine instance {found.id}, which is {found.state.value}"
        if isinstance(one, SleepHost) and found.key in agent.instances.pinned.signatures:
            return f"engine instance {found.id} is pinned, and is put asleep"
    return ""


def _draining(agent: WorkerAgent, done: list[Instruction]) -> str:
    started = any(isinstance(i, FetchInputs) for i in done)
    prewarmed = any(isinstance(i, StartHost) and not hasattr(i.wanted, "attempt_id") for i in done)
    if agent.reports.draining and (started or prewarmed):
        return "something new was started while draining"
    return ""
