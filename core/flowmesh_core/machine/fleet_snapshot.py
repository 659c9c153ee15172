"""From the state to the snapshot that the scheduler decides on."""

from collections import defaultdict
from dataclasses import replace

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import InstanceView, SignatureInfo, Snapshot, Tier, WorkerView
from flowmesh_core.machine import publications, ready_actions, workers
from flowmesh_core.machine.model import Action, Attempt, Worker
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest

ANY_MOMENT_S = 0.5
"""What is left of a loading that has taken longer than was predicted."""
_INF = float("inf")


def snapshot(state: State, now_s: float) -> Snapshot:
    """What the scheduler decides on.

    Without actions while a recovery waits for workers, or too many results for space in the store.

    It holds until the next one is asked for, or the state changes.
    """
    blocked = now_s < state.recovering_until_s or publications.holds_back(state) is not None
    index = ReadyIndex() if blocked else ready_actions.index(state, now_s)
    return Snapshot(
        workers=[_worker(state, w, now_s) for _, w in sorted(state.workers.items())],
        ready=index,
        signatures={
            signature: informed(state, signature, index.sequences[signature] / count)
            for signature, count in index.signatures.items()
        },
        fair_share=_fair_share(state, now_s),
        now_s=now_s,
        tenant_weights=state.fair.weights,
    )


def _fair_share(state: State, now_s: float) -> dict[str, float]:
    """What tenants paid of late, and what is reserved for what runs for them now, over weight."""
    weights = state.fair.weights
    shares: dict[str, float] = {}
    for run in state.runs.values():
        tenant = run.plan.namespace
        if tenant not in shares:
            shares[tenant] = state.fair.virtual_time(tenant, now_s)
        shares[tenant] += run.reserved_nanousd / weights.get(tenant, 1.0)
    return shares


def informed(state: State, signature: Digest, sequences: float) -> SignatureInfo:
    """What a signature asks for, raised by what running out of memory has taught."""
    info = state.signatures[signature]
    if sequences > 1.0:
        info = replace(info, sequences=sequences)
    learned = state.learned
    factors, reserve = learned.capacity_factors(signature), learned.reserve_mib(signature)
    more_than = _exceeded(state, signature, max(info.requirement.memory_mib, reserve))
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
    """Learned bounds on device memory, where some worker that has enough exceeds them.

    Where none does, a bound would shut out every other action of the signature, whose data may
    well fit; then an action that does not fit fails by itself.
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
    """An action that waits or runs, and what its candidates would be scored on now."""
    shown, seen = ready_actions.view(state, action), snapshot(state, now_s)
    info = {shown.signature: informed(state, shown.signature, shown.work.sequences)}
    return shown, replace(seen, signatures={**seen.signatures, **info})


def _worker(state: State, worker: Worker, now_s: float) -> WorkerView:
    held: dict[Digest, list[Attempt]] = defaultdict(list)
    for attempt in worker.held.values():
        held[attempt.action.spec.info.signature].append(attempt)
    lanes = {}
    reserved = 0
    for lane in worker.lanes:
        if lane.state == "closing":
            continue  # what is sent from now on gets a new host, of the size that it asks for
        mine = held.pop(lane.signature, [])
        loads = lane.state in ("starting", "loading")
        lanes[lane.signature] = _lane(
            lane.signature, lane.capacity, lane.memory_mib, mine, now_s, starting=loads
        )
        reserved += _reserved_mib(mine, lane.memory_mib)
    for signature, mine in held.items():
        info = mine[0].action.spec.info
        memory = mine[0].memory_mib or info.requirement.memory_mib
        lanes[signature] = _lane(signature, info.capacity, memory, mine, now_s, starting=True)
        reserved += _reserved_mib(mine, memory)
    workers.trim_near(worker)
    near = dict.fromkeys(worker.near, Tier.DISK)
    near.update({c.digest: Tier(c.tier) for c in worker.components})
    total = worker.shape.device_memory_mib * worker.shape.devices
    return WorkerView(worker.shape, lanes, near, total - reserved, not state.takes_work(worker))


def _reserved_mib(held: list[Attempt], lane_mib: int) -> int:
    """What the hosts of a signature reserve: one that all share, and one for each that is alone."""
    alone = [a for a in held if a.alone]
    shared_mib = lane_mib if len(alone) < len(held) else 0
    return shared_mib + sum(a.memory_mib or lane_mib for a in alone)


def _lane(
    signature: Digest,
    capacity: int,
    memory_mib: int,
    held: list[Attempt],
    now_s: float,
    *,
    starting: bool = False,
) -> InstanceView:
    remaining_s, ready_s, tightest_s, isolated = 0.0, _INF, _INF, False
    for a in held:  # in one go and without calls: there may be a thousand of them
        begins_s = a.assigned_s if a.assigned_s > a.starts_s else a.starts_s
        ends_in_s = begins_s + a.predicted_s - now_s
        remaining_s = ends_in_s if ends_in_s > remaining_s else remaining_s
        ready_s = a.starts_s if a.starts_s < ready_s else ready_s
        tightest_s = a.deadline_s if a.deadline_s < tightest_s else tightest_s
        isolated = isolated or a.action.isolate
    left_s = ready_s - now_s if held else 0.0
    return InstanceView(
        signature=signature,
        capacity=max(1, capacity),
        held=len(held),
        remaining_s=remaining_s,
        load_remaining_s=max(ANY_MOMENT_S, left_s) if starting else 0.0,
        memory_mib=memory_mib,
        isolated=isolated,
        tightest_deadline_s=tightest_s,
    )
