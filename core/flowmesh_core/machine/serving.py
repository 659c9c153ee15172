"""Replicas of services on workers: what each was sent, what it reports, and the memory that counts.

The control plane's planner decides where replicas are (``serving.plan.replica_placement``); its
plan is a level, as the prewarm plan. The memory of a replica is subtracted from its worker's
always, whether it is loaded or not, and a worker that has one is busy (ADR 51).
"""

from collections.abc import Iterable, Mapping

from flowmesh_core.accounting.meter import Activity
from flowmesh_core.machine import single_tenant
from flowmesh_core.machine.commands import Serve
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import ServingPlanChanged
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.messages import (
    RouterAddress,
    ServingReplica,
    ServingReplicaState,
)
from flowmesh_core.units import Digest, split_exactly

SERVICE_PREFIX = "service/"
"""Before a replica's id, where attempts pay under their id: no scope has this name."""
_FAILED, _READY = "failed", "ready"
_LOADING = ("fetching", "loading")


def connected(
    state: State, worker: Worker, states: Iterable[ServingReplicaState], now_s: float
) -> None:
    """Records what a worker that has connected holds; what it was sent may not have arrived."""
    worker.replicas = None
    reported(state, worker, states, now_s)


def reported(
    state: State, worker: Worker, states: Iterable[ServingReplicaState], now_s: float
) -> None:
    """Records the states of a worker's replicas."""
    before, worker.replica_states = worker.replica_states, {s.replica_id: s for s in states}
    for replica_id, known in worker.replica_states.items():
        earlier = before.get(replica_id)
        if replica_id in worker.services and (earlier is None or earlier.state != known.state):
            _count_change(state, worker, earlier, known, now_s)
    listed = {r.replica_id for r in worker.replicas or ()}
    for replica_id in [r for r in worker.services if r not in worker.replica_states]:
        worker.metered_calls.pop(replica_id, None)
        if replica_id not in listed:
            worker.loads_begun_s.pop(replica_id, None)
            del worker.services[replica_id]


def _count_change(
    state: State,
    worker: Worker,
    earlier: ServingReplicaState | None,
    known: ServingReplicaState,
    now_s: float,
) -> None:
    """Counts a replica's failure, or the time that it took to load, where its state changed.

    One that was ready and loads again has failed in between: its host or its hub ended.
    """
    replica_id, service = known.replica_id, worker.services[known.replica_id]
    was_ready = earlier is not None and earlier.state == _READY
    if known.state == _FAILED or (was_ready and known.state in _LOADING):
        state.figures.replica_failed(service, now_s)
    if known.state == _READY:
        begun_s = worker.loads_begun_s.pop(replica_id, None)
        if begun_s is not None:
            state.figures.replica_loaded(service, max(0.0, now_s - begun_s), now_s)
    elif known.state not in _LOADING:
        worker.loads_begun_s.pop(replica_id, None)
    elif earlier is not None and earlier.state in {_READY, _FAILED}:
        worker.loads_begun_s[replica_id] = now_s


def plan_changed(state: State, event: ServingPlanChanged, now_s: float) -> None:
    """Sends each worker its replicas and the routers, where those have changed."""
    has_changed = False
    for name, worker in state.workers.items():
        wanted = event.workers.get(name, ())
        if _has(worker) == wanted and (not wanted or worker.routers == event.routers):
            continue
        has_changed = has_changed or _moves_any(worker, wanted)
        worker.replicas, worker.routers = wanted, event.routers
        for replica in wanted:
            if replica.replica_id not in {*worker.services, *worker.replica_states}:
                worker.loads_begun_s[replica.replica_id] = now_s
            worker.services[replica.replica_id] = replica.service
            state.figures.replica_sent(replica.service, now_s)
            single_tenant.bind(worker, replica.code_tenant)
        state.emit(Serve(name, wanted, event.routers))
        state.dirty = True
    state.figures.serving_plans += has_changed


def _moves_any(worker: Worker, wanted: tuple[ServingReplica, ...]) -> bool:
    """Returns whether a worker is to have other replicas; not whether it is sent them again."""
    known = worker.replica_states
    listed = known if worker.replicas is None else {r.replica_id for r in worker.replicas}
    return set(listed) != {r.replica_id for r in wanted}


def plan_is_current(
    state: State,
    wanted: Mapping[str, tuple[ServingReplica, ...]],
    routers: tuple[RouterAddress, ...],
) -> bool:
    """Returns whether every worker was sent its replicas, and the present routers, already."""
    for name, worker in state.workers.items():
        replicas = wanted.get(name, ())
        if _has(worker) != replicas or (replicas and worker.routers != routers):
            return False
    return True


def _has(worker: Worker) -> tuple[ServingReplica, ...] | None:
    """Returns what a worker was sent; nothing where it was sent nothing and reports nothing."""
    if worker.replicas is None and not worker.replica_states:
        return ()
    return worker.replicas


def pinned_mib(worker: Worker) -> dict[Digest, int]:
    """Returns the memory reserved for replicas, by signature: those of one share an instance."""
    found: dict[Digest, int] = {}
    for replica in worker.replicas or ():
        state = worker.replica_states.get(replica.replica_id)
        if state is None or state.state != _FAILED or state.memory_mib:
            opening = replica.opening
            found[opening.signature] = max(found.get(opening.signature, 0), opening.memory_mib)
    for state in worker.replica_states.values():
        if state.memory_mib:
            found[state.signature] = max(found.get(state.signature, 0), state.memory_mib)
    return found


def count(worker: Worker) -> int:
    """Returns how many replicas a worker has that are loaded or to be loaded."""
    listed = [r.replica_id for r in worker.replicas or ()]
    states = worker.replica_states
    failed = {r for r, s in states.items() if s.state == _FAILED}
    return len({*listed, *states} - failed)


def is_idle(worker: Worker) -> bool:
    """Returns whether a worker has replicas, none of them with a call."""
    states = worker.replica_states.values()
    return bool(states) and not any(state.calls for state in states)


def activities(worker: Worker) -> dict[str, Activity]:
    """Returns what the replicas that a worker was sent did since the last call of :func:`metered`.

    One without a call counts among those that wait for an instance to load: it pays for the
    instance where nothing runs in it.
    """
    found = {}
    for replica_id, state in worker.replica_states.items():
        if state.memory_mib and replica_id in worker.services:
            units = max(0, state.units - worker.metered_calls.get(replica_id, 0))
            activity = Activity(state.signature, running=state.calls > 0, units=units)
            found[SERVICE_PREFIX + replica_id] = activity
    return found


def idle_shares(worker: Worker, amount: int, idle: Iterable[str]) -> dict[str, int]:
    """Splits the cost of a worker on which only replicas without calls are: by their memory.

    Args:
        worker: that costs it.
        amount: nano-dollars.
        idle: keys of :func:`activities`, at least one.
    """
    keys = list(idle)
    states = worker.replica_states
    weights = [states[k.removeprefix(SERVICE_PREFIX)].memory_mib for k in keys]
    return dict(zip(keys, split_exactly(amount, weights), strict=True))


def metered(state: State, worker: Worker, shares: Mapping[str, int], now_s: float) -> None:
    """Charges services for their replicas' shares of a segment of a worker's cost."""
    shape = worker.shape
    for key, share in shares.items():
        service = worker.services[key.removeprefix(SERVICE_PREFIX)]
        state.book.services_nanousd += share
        state.service_spend[service] += share
        state.figures.service_paid(service, share, now_s)
        state.service_charges.add(service, shape.pool, shape.price_nanousd_per_hour, share, now_s)
    for replica_id, reported in worker.replica_states.items():
        worker.metered_calls[replica_id] = reported.units
