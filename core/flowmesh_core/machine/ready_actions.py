"""The ready set, and its index for the scheduler.

The index has an action as it was at the last snapshot; an action that changes is removed at once
and added anew by the next snapshot (ADR 13).
"""

from msgspec import structs

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import PlacementKey
from flowmesh_core.machine import stragglers
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Run
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest

NO_POOLS = frozenset[str]()
NO_TENANTS = frozenset[str]()


def enter(state: State, action: Action) -> None:
    """Puts an action into the ready set."""
    state.ready[action.key] = action
    state.unseen[action.key] = action
    alternate(state, action)
    state.dirty = True


def leave(state: State, action: Action) -> None:
    """Removes an action from the ready set, where it is in it."""
    if state.ready.get(action.key) is action:
        _hide(state, action)
        del state.ready[action.key]
        state.unseen.pop(action.key, None)
        state.alternating.pop(action.key, None)


def mark_changed(state: State, action: Action) -> None:
    """Marks an action as changed in a field that the scheduler reads."""
    if state.ready.get(action.key) is action:
        _hide(state, action)
        state.unseen[action.key] = action


def alternate(state: State, action: Action) -> None:
    """Notes whether a ready action has several requirements that take turns."""
    if len(action.options) > 1 and state.ready.get(action.key) is action:
        state.alternating[action.key] = action
    else:
        state.alternating.pop(action.key, None)


def index(state: State, now_s: float) -> ReadyIndex:
    """Returns the ready actions of runs that are not paused, and replicas of stragglers."""
    # Replicas go first: an action that has failed since is ready itself, under the same name.
    for replica in state.replicas:
        state.index.remove(replica)
    for action in state.unseen.values():
        if may_start(state, action):
            action.view = view(state, action)
            state.index.add(action.view)
    state.unseen.clear()
    late = stragglers.find_stragglers(state, now_s)
    state.replicas = [
        structs.replace(
            view(state, a.action),
            signature=info.signature,
            replica_of=a.worker,
            min_trust=info.requirement.min_trust,
        )
        for a, info in late
        if may_start(state, a.action)
    ]
    for replica in state.replicas:
        state.index.add(replica)
    state.index.release(now_s)
    return state.index


def _hide(state: State, action: Action) -> None:
    if action.view is not None:
        state.index.remove(action.view)
        action.view = None


def ready_name(key: ActionKey) -> Digest:
    """Returns the scheduler's name of an action: unlike its id, it is unique across scopes."""
    return Digest(f"{key.scope}/{key.action_id}")


def view(state: State, action: Action) -> ReadyAction:
    """Returns what the scheduler would see of an action if it were ready now."""
    spec = action.spec
    run, path_s = _first_in_order(state, action)
    return ReadyAction(
        action_id=ready_name(action.key),
        signature=action.shown.signature,
        tenant=run.plan.namespace,
        priority=run.priority,
        deadline_s=run.deadline_at_s,
        critical_path_s=path_s,
        ready_s=action.ready_s,
        work=spec.work,
        inputs=_inputs(action),
        weights=run.plan.weights,
        isolate=action.isolate,
        avoid_workers=action.avoid_workers,
        not_before_s=action.not_before_s,
        code_tenant=code_tenant(state, action) if state.separates_code else "",
        reserved_pools=reserved_pools(state, action) if state.reserved_pools else NO_POOLS,
        min_trust=action.info.requirement.min_trust,
        bounded_tenants=bounded_tenants(state, action) if state.worker_limits else NO_TENANTS,
    )


def may_start(state: State, action: Action) -> bool:
    """Whether a run that is not paused wants the action."""
    return not all(map(state.pauses, [state.runs[uid] for uid in action.runs()]))


def placement_key(state: State, action: Action) -> PlacementKey:
    """Returns what the reasons for not placing an action go by."""
    info = action.shown
    tenant = code_tenant(state, action) if state.separates_code else ""
    pools = reserved_pools(state, action) if state.reserved_pools else NO_POOLS
    bounded = bounded_tenants(state, action) if state.worker_limits else NO_TENANTS
    return info.signature, info.requirement.min_trust, tenant, pools, bounded


def code_tenant(state: State, action: Action) -> str:
    """Returns the tenant whose user code an attempt would run; empty where it runs none."""
    if not action.info.requirement.user_code:
        return ""
    return state.runs[action.runs()[0]].plan.namespace


def tenants(state: State, action: Action) -> frozenset[str]:
    """Returns the namespaces that want an action.

    Paused runs count only where there is no other.
    """
    runs = [state.runs[uid] for uid in action.runs()]
    if len(runs) > 1:
        runs = [run for run in runs if not state.pauses(run)] or runs
    return frozenset([run.plan.namespace for run in runs])


def sole_tenant(state: State, action: Action) -> str:
    """Returns the namespace that alone wants an action; empty where several do."""
    found = tenants(state, action)
    return next(iter(found)) if len(found) == 1 else ""


def bounded_tenants(state: State, action: Action) -> frozenset[str]:
    """Returns the namespaces that want an action; none unless the workers of each are bounded."""
    found = tenants(state, action)
    return found if found <= state.worker_limits.keys() else NO_TENANTS


def reserved_pools(state: State, action: Action) -> frozenset[str]:
    """Returns the reserved pools that the action may run in: those of a subscriber's namespace."""
    namespaces = tenants(state, action)
    pools = state.reserved_pools or {}
    return frozenset(name for name, allowed in pools.items() if not allowed.isdisjoint(namespaces))


def _first_in_order(state: State, action: Action) -> tuple[Run, float]:
    """Returns the subscribed run that would come first alone, and the length of its path.

    The action is ranked as that one, and counted to its tenant. Paused runs count only where there
    is no other.
    """
    waiting = [(state.runs[s.uid], s.path) for s in action.subscribers]
    if len(waiting) == 1:
        run, path = waiting[0]
        return run, run.remaining_s.get(path, 0.0)
    waiting = [w for w in waiting if not state.pauses(w[0])] or waiting
    rated = [(run, run.remaining_s.get(path, 0.0)) for run, path in waiting]
    return min(rated, key=lambda r: (-r[0].priority, r[0].deadline_at_s - r[1], -r[1]))


def _inputs(action: Action) -> tuple[tuple[Digest, int], ...]:
    """What an attempt reads besides components, with sizes."""
    spec, checkpoint = action.spec, action.checkpoint
    read = [(a.digest, a.size_bytes) for p, a in spec.inputs.items() if p not in spec.loaded]
    return (
        tuple(read) if checkpoint is None else (*read, (checkpoint.digest, checkpoint.size_bytes))
    )


def deadline_at_s(runs: list[Run]) -> float:
    """Returns the earliest deadline of an action's runs (absolute)."""
    return runs[0].deadline_at_s if len(runs) == 1 else min(r.deadline_at_s for r in runs)


def priority(runs: list[Run]) -> int:
    """Returns the highest priority of an action's runs."""
    return runs[0].priority if len(runs) == 1 else max(r.priority for r in runs)
