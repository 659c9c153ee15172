"""Reserves one of a namespace's workers for work that needs another worker than it uses.

Without it an endless stream of actions for one kind of worker would keep a namespace at its bound,
and what needs another kind would wait for ever (ADR 49). Called by ``decide`` and ``explain``
before they look for slots; the capacity signal asks which work comes first.
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
"""Namespace → the action that comes first in it, with its group."""


def reserve_in_bounds(tick: SchedulingCycle, groups: Iterable[ActionGroup]) -> None:
    """Reserves a worker of each bounded namespace whose first action can run on none that it uses.

    Until that action is placed the other work of the namespace counts with one worker less, so one
    that it uses becomes free, and the place in the bound is not taken again.
    """
    bounded = [group for group in groups if group.bounded_tenants and not group.replica_of]
    able = (g for g in bounded if tick.may_call(g) and next(_able(tick, g), None) is not None)
    for namespace, (group, action) in first_in_bounds(able).items():
        if _has_waited(tick, group, action) and tick.bounds.may_use_any([namespace]):
            in_order = _first_to_be_free(tick, namespace)
            tick.bounds.reserve(namespace, group.restrictions, in_order)


def first_in_bounds(groups: Iterable[ActionGroup]) -> Firsts:
    """Returns the action that comes first in each namespace with a bound: by priority and age.

    Of each group only the next one counts, which would take its slot. By the order within a tenant
    (``ReadyAction.rank``) a stream of actions with long paths before them would be first for ever.
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
    """Yields the workers that can run a group now, or once they have less to do."""
    kinds = [kind for kind, cause in enumerate(tick.unmet(group)) if cause is None]
    excluded = excluded_workers(tick, group, kinds)
    for kind in kinds:
        for member in tick.kinds[kind]:
            account = tick.accounts[member]
            barred = account.view.name in excluded or not account.admits(group.code_tenant)
            if not barred and may_have_slot(account, group):
                yield member


def _has_waited(tick: SchedulingCycle, group: ActionGroup, action: ReadyAction) -> bool:
    """Whether an action waits for another worker than those in use for long enough: as ADR 5."""
    waited_s = tick.snapshot.now_s - action.ready_s
    if waited_s < RESERVATION_PATIENCE_S:
        return False
    able = list(_able(tick, group))
    used = tick.bounds.used(group.bounded_tenants)
    if any(tick.accounts[member].view.name in used for member in able):
        return False
    return waited_s >= RESERVATION_PATIENCE_LOADS * min(tick.open_s(group, m) for m in able)


def _first_to_be_free(tick: SchedulingCycle, namespace: str) -> list[str]:
    """Returns the workers that a namespace uses, in the order in which they are to be free.

    Those that take nothing new come first.
    """
    views = (account.view for account in tick.accounts if not account.view.draining)
    busy_s = {
        v.name: max(i.remaining_s for i in v.instances.values()) for v in views if v.instances
    }
    return sorted(tick.bounds.used([namespace]), key=lambda name: (busy_s.get(name, 0.0), name))
