"""The ready set, and what the scheduler sees of it.

An action is shown as it was when the last snapshot was made; one that changes is taken out of the
index at once and shown anew by the next snapshot.
"""

from msgspec import structs

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.machine import stragglers
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Run
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest

_NOBODY = frozenset[str]()


def enter(state: State, action: Action) -> None:
    """Puts an action into the ready set."""
    state.ready[action.key] = action
    state.unseen[action.key] = action
    state.dirty = True


def leave(state: State, action: Action) -> None:
    """Takes an action out of the ready set, where it is in it."""
    if state.ready.get(action.key) is action:
        _hide(state, action)
        del state.ready[action.key]
        state.unseen.pop(action.key, None)


def outdated(state: State, action: Action) -> None:
    """Something that the scheduler reads of an action has changed."""
    if state.ready.get(action.key) is action:
        _hide(state, action)
        state.unseen[action.key] = action


def index(state: State, now_s: float) -> ReadyIndex:
    """The ready actions of runs that are not suspended, and replicas of those that run too long."""
    # First: an action whose attempt has failed since is ready again, under the name of its replica.
    for replica in state.replicas:
        state.index.remove(replica)
    for action in state.unseen.values():
        if not all(state.runs[s.uid].suspended for s in action.subscribers):
            action.view = view(state, action)
            state.index.add(action.view)
    state.unseen.clear()
    late = stragglers.late(state, now_s)
    state.replicas = [structs.replace(view(state, a.action), replica_of=a.worker) for a in late]
    for replica in state.replicas:
        state.index.add(replica)
    state.index.release(now_s)
    return state.index


def _hide(state: State, action: Action) -> None:
    if action.view is not None:
        state.index.remove(action.view)
        action.view = None


def ready_name(key: ActionKey) -> Digest:
    """The scheduler's opaque name of an action: unlike its id it tells scopes apart."""
    return Digest(f"{key.scope}/{key.action_id}")


def view(state: State, action: Action) -> ReadyAction:
    """What the scheduler would see of an action if it were ready now."""
    runs = [state.runs[uid] for uid in action.runs()]
    spec = action.spec
    return ReadyAction(
        action_id=ready_name(action.key),
        signature=spec.info.signature,
        tenant=runs[0].plan.namespace,
        priority=priority(runs),
        deadline_s=deadline_at_s(runs),
        critical_path_s=max(
            state.runs[s.uid].remaining_s.get(s.path, 0.0) for s in action.subscribers
        ),
        ready_s=action.ready_s,
        work=spec.work,
        inputs=_near_by(action),
        weights=runs[0].plan.weights,
        isolate=action.isolate,
        avoid=frozenset(action.avoid) if action.avoid else _NOBODY,
        not_before_s=action.not_before_s,
    )


def _near_by(action: Action) -> tuple[tuple[Digest, int], ...]:
    """What an attempt reads besides components, and how much of it."""
    spec, kept = action.spec, action.checkpoint
    read = [(a.digest, a.size_bytes) for p, a in spec.inputs.items() if p not in spec.loaded]
    return tuple(read) if kept is None else (*read, (kept.digest, kept.size_bytes))


def deadline_at_s(runs: list[Run]) -> float:
    """The tightest deadline of an action's runs (absolute)."""
    return runs[0].deadline_at_s if len(runs) == 1 else min(r.deadline_at_s for r in runs)


def priority(runs: list[Run]) -> int:
    """The highest priority of an action's runs."""
    return runs[0].priority if len(runs) == 1 else max(r.priority for r in runs)
