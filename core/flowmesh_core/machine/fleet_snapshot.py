"""Makes the snapshot that the scheduler decides on from the state."""

from dataclasses import replace

from flowmesh_core.costmodel import CostKey
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import InstanceView, SignatureInfo, Snapshot, Tier, WorkerView
from flowmesh_core.machine import (
    namespace_limits,
    pending_publications,
    ready_actions,
    serving,
    workers,
)
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Action, Attempt
from flowmesh_core.machine.state import State
from flowmesh_core.placement.settings import FAIR_SHARE_PRICE_NANOUSD_PER_HOUR
from flowmesh_core.protocol.messages import EngineInstanceState
from flowmesh_core.units import Digest

ANY_MOMENT_S = 0.5
"""Remaining seconds to assume for a load that takes longer than predicted."""
_HOUR_S = 3600.0
_INF = float("inf")


def snapshot(state: State, now_s: float) -> Snapshot:
    """Returns what the scheduler decides on; valid until the next one or a change of state.

    It has no ready actions during a recovery, before declared pools are known, and while too many
    results wait for space in the store.
    """
    blocked = (
        now_s < state.recovering_until_s
        or state.reserved_pools is None
        or pending_publications.holds_back(state) is not None
    )
    index = ReadyIndex() if blocked else ready_actions.index(state, now_s)
    return Snapshot(
        workers=worker_views(state, now_s),
        ready=index,
        signatures={
            signature: informed(state, signature, index.sequences[signature] / count)
            for signature, count in index.signatures.items()
        },
        fair_share=_fair_share(state, now_s),
        now_s=now_s,
        tenant_weights=state.fair.weights,
        reserved_pools=frozenset(state.reserved_pools or ()),
        code_calls=namespace_limits.code_calls(state) if state.code_limits else {},
        worker_uses=namespace_limits.worker_uses(state) if state.worker_limits else {},
    )


def worker_views(state: State, now_s: float) -> list[WorkerView]:
    """Returns the workers as the scheduler sees them, in order of name."""
    return [_worker(state, w, now_s) for _, w in sorted(state.workers.items())]


def _fair_share(state: State, now_s: float) -> dict[str, float]:
    """Returns, by tenant, what it paid recently plus what its runs reserve now, over its weight."""
    weights, runs = state.fair.weights, state.runs.values()
    tenants = dict.fromkeys([run.plan.namespace for run in runs])
    shares = {tenant: state.fair.virtual_time(tenant, now_s) for tenant in tenants}
    for run in runs:  # there may be thousands of runs, but few have an attempt
        if run.reserved_nanousd:
            tenant = run.plan.namespace
            shares[tenant] += run.reserved_nanousd / weights.get(tenant, 1.0)
    for worker in state.workers.values():
        if worker.unpriced is not None and worker.attempts:
            _reserve_time(state, worker, shares)
    return shares


def _reserve_time(state: State, worker: Worker, shares: dict[str, float]) -> None:
    """Adds the expected cost of a worker's time for its attempts, for a worker without a price."""
    each = FAIR_SHARE_PRICE_NANOUSD_PER_HOUR / _HOUR_S / len(worker.attempts)
    for attempt in worker.attempts.values():
        uids = attempt.action.accepting_runs(worker.shape.trust)
        for uid in uids:
            tenant = state.runs[uid].plan.namespace
            weight = state.fair.weights.get(tenant, 1.0)
            shares[tenant] += each * attempt.predicted_s / len(uids) / weight


def informed(state: State, signature: Digest, sequences: float) -> SignatureInfo:
    """Returns a signature's information, with learned memory limits and the mean of sequences."""
    info = state.signatures[signature]
    if sequences > 1.0:
        info = replace(info, sequences=sequences)
    learned = state.learned
    factors, reserve = learned.capacity_factors(info.base), learned.reserve_mib(info.base)
    more_than = _exceeded(state, info.base, max(info.requirement.memory_mib, reserve))
    if not (factors or more_than or reserve):
        return info
    requirement = replace(
        info.requirement,
        memory_mib=max(info.requirement.memory_mib, reserve),
        capacity_factor=factors,
        min_memory_by_class=more_than,
    )
    return replace(info, requirement=requirement)


def _exceeded(state: State, signature: Digest, memory_mib: int) -> dict[str, int]:
    """Returns learned bounds on device memory, unless they exclude every worker with enough of it.

    In that case no other action of the signature could run, although its data may fit. Without the
    bounds, only an action that does not fit fails.
    """
    bounds = state.learned.more_than_mib(signature)
    if not bounds:
        return bounds
    shapes = [w.shape for w in state.workers.values()]
    shapes = [s for s in shapes if s.device_memory_mib >= memory_mib]
    if any(s.device_memory_mib > bounds.get(s.device_class, -1) for s in shapes):
        return bounds
    return {}


def as_if_ready(state: State, action: Action, now_s: float) -> tuple[ReadyAction, Snapshot]:
    """Returns a waiting or running action as if ready, and the snapshot to score its candidates."""
    action_view, current = ready_actions.view(state, action), snapshot(state, now_s)
    info = {
        action_view.signature: informed(state, action_view.signature, action_view.work.sequences)
    }
    return action_view, replace(current, signatures={**current.signatures, **info})


def _worker(state: State, worker: Worker, now_s: float) -> WorkerView:
    by_signature = {s: list(same.values()) for s, same in worker.by_signature.items()}
    instances = {}
    pinned = serving.pinned_mib(worker) if worker.replicas or worker.replica_states else {}
    reserved = sum(pinned.values())
    for instance in worker.instances:
        if instance.state == "closing":
            continue  # new assignments get a new host of the size that they require
        assigned = by_signature.pop(instance.signature, [])
        instances[instance.signature] = _instance_view(
            instance.signature,
            instance.capacity,
            instance.memory_mib,
            assigned,
            now_s,
            loaded_at_s=_loaded_at_s(state, worker, instance, assigned),
            pinned=instance.signature in pinned,
        )
        reserved += _reserved_mib(assigned, instance.memory_mib, pinned.get(instance.signature, 0))
    for signature, assigned in by_signature.items():
        info = assigned[0].info
        memory = assigned[0].memory_mib or info.requirement.memory_mib
        instances[signature] = _instance_view(
            signature,
            info.capacity,
            memory,
            assigned,
            now_s,
            loaded_at_s=min(a.starts_s for a in assigned),
            pinned=signature in pinned,
        )
        reserved += _reserved_mib(assigned, memory, pinned.get(signature, 0))
    workers.trim_near(worker)
    near = dict.fromkeys(worker.local_digests, Tier.DISK)
    near.update({c.digest: Tier(c.tier) for c in worker.components})
    total = worker.shape.device_memory_mib * worker.shape.devices
    asleep = frozenset(i.signature for i in worker.instances if i.asleep)
    return WorkerView(
        worker.shape,
        instances,
        near,
        total - reserved,
        not state.takes_work(worker),
        worker.code_tenant,
        serving.count(worker) if pinned else 0,
        worker.serves,
        sum(pinned.values()),
        asleep,
    )


def _reserved_mib(assigned: list[Attempt], instance_mib: int, pinned_mib: int = 0) -> int:
    """Returns what a signature's hosts reserve: a shared host and one for each isolated attempt.

    ``pinned_mib`` is left out: it is reserved for the shared host even if that has no attempts.
    """
    alone = [a for a in assigned if a.alone]
    shared_mib = instance_mib - pinned_mib if len(alone) < len(assigned) else 0
    return shared_mib + sum(a.memory_mib or instance_mib for a in alone)


def _loaded_at_s(
    state: State, worker: Worker, instance: EngineInstanceState, assigned: list[Attempt]
) -> float | None:
    """Returns when an instance is expected to have loaded or woken; None if it already has.

    The time counts from when its host was first seen to load, for an attempt or ahead of work.
    """
    if instance.state not in ("starting", "loading"):
        return None
    info = state.signatures.get(instance.signature)
    since_s = worker.loading_since_s.get(instance.signature)
    if info is None or since_s is None:
        return min((a.starts_s for a in assigned), default=0.0)
    size = sum(size for _, size in info.components)
    predict = state.model.wake_s if instance.load_s else state.model.load_s
    return since_s + predict(CostKey.of(info), worker.shape.device_class, size)


def _instance_view(
    signature: Digest,
    capacity: int,
    memory_mib: int,
    assigned: list[Attempt],
    now_s: float,
    *,
    loaded_at_s: float | None = None,
    pinned: bool = False,
) -> InstanceView:
    earliest_s = 0.0 if loaded_at_s is None else loaded_at_s
    remaining_s, tightest_s, isolated = 0.0, _INF, False
    for a in assigned:  # one pass without calls, since there may be a thousand attempts
        begins_s = a.assigned_s if a.assigned_s > a.starts_s else a.starts_s
        begins_s = earliest_s if earliest_s > begins_s else begins_s
        ends_in_s = begins_s + a.predicted_s - now_s
        remaining_s = ends_in_s if ends_in_s > remaining_s else remaining_s
        tightest_s = a.deadline_s if a.deadline_s < tightest_s else tightest_s
        isolated = isolated or a.action.isolate
    return InstanceView(
        signature=signature,
        capacity=max(1, capacity),
        assigned=len(assigned),
        remaining_s=remaining_s,
        load_remaining_s=0.0 if loaded_at_s is None else max(ANY_MOMENT_S, loaded_at_s - now_s),
        memory_mib=memory_mib,
        isolated=isolated,
        suspects=bool(assigned and assigned[0].info.suspects_of),
        tightest_deadline_s=tightest_s,
        pinned=pinned,
    )
