"""Reserves a place within a namespace's limit on workers for work that needs a new worker.

Without the reservation, an endless stream of actions for one kind of worker would keep a namespace
at its limit, and actions that need another kind would wait forever (ADR 49). ``decide`` and
``explain`` reserve before they look for slots. The capacity signal uses :func:`first_in_bounds`.
"""

from collections.abc import Iterable, Iterator

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.equivalence import excluded_workers
from flowmesh_core.placement.reservations import may_have_slot
from flowmesh_core.placement.settings import RESERVATION_PATIENCE_LOADS, RESERVATION_PATIENCE_S
from flowmesh_core.units import Digest

Firsts = dict[str, tuple[ActionGroup, ReadyAction]]
"""Namespace → its first action, with the action's group."""


def reserve_in_bounds(tick: SchedulingCycle, groups: Iterable[ActionGroup]) -> None:
    """Reserves a place for a bounded namespace's first action if it needs a new worker.

    It does if none of the namespace's workers can run it, and it must have waited long enough.
    Until it is placed, the namespace's other actions have a limit that is lower by one. So one of
    the namespace's workers becomes free, and other actions cannot take the place.
    """
    bounded = [group for group in groups if group.bounded_tenants and not group.replica_of]
    able = (g for g in bounded if tick.may_call(g) and next(_able(tick, g), None) is not None)
    for namespace, (group, action) in first_in_bounds(able).items():
        if _has_waited(tick, group, action) and tick.bounds.may_use_any([namespace]):
            in_order = _first_to_be_free(tick, namespace)
            tick.bounds.reserve(namespace, group.restrictions, in_order)


def first_in_bounds(groups: Iterable[ActionGroup]) -> Firsts:
    """Returns the first action, by priority and age, of each namespace with a limit on workers.

    Only the head of each group is considered, because it would take the group's next slot. The
    order within a tenant (``ReadyAction.rank``) does not serve here: an endless stream of actions
    with long critical paths would always come first.
    """
    found: Firsts = {}
    for group in groups:
        action = min(queue[0] for queue in group.ready.queues.values())[1]
        for namespace in group.bounded_tenants:
            known = found.get(namespace)
            if known is None or _order(action) < _order(known[1]):
                found[namespace] = group, action
    return found


def _order(action: ReadyAction) -> tuple[int, float, Digest]:
    return -action.priority, action.ready_s, action.action_id


def _able(tick: SchedulingCycle, group: ActionGroup) -> Iterator[int]:
    """Yields the workers that can run a group, now or once they are less busy."""
    kinds = [kind for kind, cause in enumerate(tick.unmet(group)) if cause is None]
    excluded = excluded_workers(tick, group, kinds)
    for kind in kinds:
        for member in tick.kinds[kind]:
            account = tick.accounts[member]
            barred = account.view.name in excluded or not account.admits(group.code_tenant)
            if not barred and may_have_slot(account, group):
                yield member


def _has_waited(tick: SchedulingCycle, group: ActionGroup, action: ReadyAction) -> bool:
    """Whether no worker in use can run an action and it has waited as long as ADR 5 requires."""
    waited_s = tick.snapshot.now_s - action.ready_s
    if waited_s < RESERVATION_PATIENCE_S:
        return False
    able = list(_able(tick, group))
    used = tick.bounds.used(group.bounded_tenants)
    if any(tick.accounts[member].view.name in used for member in able):
        return False
    return waited_s >= RESERVATION_PATIENCE_LOADS * min(tick.open_s(group, m) for m in able)


def _first_to_be_free(tick: SchedulingCycle, namespace: str) -> list[str]:
    """Returns the workers that a namespace uses, ordered by when they are expected to be free.

    Draining workers, which take nothing new, come first.
    """
    views = (account.view for account in tick.accounts if not account.view.draining)
    busy_s = {
        v.name: max(i.remaining_s for i in v.instances.values()) for v in views if v.instances
    }
    return sorted(tick.bounds.used([namespace]), key=lambda name: (busy_s.get(name, 0.0), name))
