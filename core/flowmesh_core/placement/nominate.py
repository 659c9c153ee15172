"""Nominates the ready actions in fair order, each to its best slot.

``decide`` nominates all groups, then again the groups that can use slots vacated by local search,
and last the replica attempts. Nomination changes the cycle's capacity, but never the snapshot.
"""

from collections.abc import Collection, Iterable
from math import floor
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.placement.action_groups import ActionGroup, is_urgent
from flowmesh_core.placement.candidates import CandidateFinder
from flowmesh_core.placement.capacity import WAIT
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.fair_order import FairOrder
from flowmesh_core.placement.free_slots import FreeSlots
from flowmesh_core.placement.reservations import reserve_worker
from flowmesh_core.placement.slot_picker import Slot, SlotPicker
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.fleet.ready_index import ReadyGroup

MANY = 2**40


class GroupCursor(msgspec.Struct, eq=False, gc=False):
    """The progress of a group through nomination.

    Attributes:
        picker: None until it is needed, or if no worker has a slot or an instance to wait for.
        served: the number of its actions that have a slot; the others are rejected at the end.
    """

    group: ActionGroup
    candidates: CandidateFinder
    free_slots: FreeSlots
    picker: SlotPicker | None = None
    served: int = 0

    def get_picker(self, tick: SchedulingCycle) -> SlotPicker | None:
        """Returns the group's slot picker, and creates it at the first call."""
        if self.picker is None:
            found = self.candidates.estimates(self.group, self.free_slots)
            self.picker = SlotPicker(tick, self.group, self.free_slots, found) if found else None
        return self.picker


class Nomination(msgspec.Struct, eq=False, gc=False):
    """An action with a tentative slot."""

    action: ReadyAction
    picker: SlotPicker
    slot: Slot


def _size(group: ActionGroup) -> tuple[object, ...]:
    restrictions = group.info.requirement.min_trust, sorted(group.reserved_pools)
    return (*structs.astuple(group.work), *restrictions)


def cursors_of(tick: SchedulingCycle, groups: Iterable[ActionGroup]) -> list[GroupCursor]:
    """Returns a cursor for each group, with its candidates at the current capacity."""
    candidates, groups = CandidateFinder(tick), list(groups)
    # More workers than needed would count against a namespace's limit, or be closed to others.
    bound = (group for group in groups if group.bounded_tenants or group.code_tenant)
    tick.unspread.update(group.info.signature for group in bound)
    # The largest actions of a signature decide, whatever order the groups are in.
    for group in sorted(groups, key=_size, reverse=True):
        tick.spread(group)
    return [GroupCursor(group, candidates, candidates.free_slots(group)) for group in groups]


def nominate(
    tick: SchedulingCycle, clients: list[GroupCursor], placed: Collection[Digest] = frozenset()
) -> list[Nomination]:
    """Nominates the actions that fit, in fair order; the others stay in the queues.

    Groups that no worker can run are left out. So are groups whose instances are all full, because
    they have an instance to wait for. Actions in ``placed`` are passed over.
    """
    able: dict[ReadyGroup, GroupCursor] = {}
    by_slots: dict[FreeSlots, list[ReadyGroup]] = {}
    for cursor in clients:
        free_slots, ready = cursor.free_slots, cursor.group.ready
        if free_slots.cause is RejectionCause.BUSY and not free_slots.full:
            able[ready] = cursor
            by_slots.setdefault(free_slots, []).append(ready)
    if not able:
        return []
    snapshot = tick.snapshot
    order = FairOrder(snapshot.ready, able, tick.virtual_time, snapshot.tenant_weights, placed)
    served: list[Nomination] = []
    # A group without a slot is dropped, not skipped action by action. Slots only become fewer while
    # this loop runs, so if one action of a group gets none, no later action of it will. With 10,000
    # ready actions of a full signature, skipping would examine each of them in every cycle. For the
    # same reason, all groups that share the full slots are dropped together. Dropping takes nothing
    # from the tenant: it is not charged, and its next group becomes the head. Dropped actions count
    # as rejected at the end of the cycle, and local search may bring a group back. No slot stays
    # empty because of a drop:
    # test_no_fitting_action_stays_unplaced_unless_waiting_for_an_instance_is_better.
    while (head := order.pop()) is not None:
        action, ready = head
        cursor = able[ready]
        group, free_slots = cursor.group, cursor.free_slots
        free_slots.refresh()
        if free_slots.full or not tick.may_call(group):
            order.drop(*by_slots[free_slots])
            continue
        picker = cursor.get_picker(tick) if free_slots.best_tier < WAIT else None
        slot = _slot_for(picker, action, snapshot.now_s) if picker else None
        if picker is not None and slot is not None and slot.tier >= WAIT:
            patient = _count_preferring_to_wait(tick, picker, group.count - cursor.served)
            if patient > 0:
                tick.waiting[group.info.signature] += _wait(order, cursor, patient)
                continue
            slot = picker.best_now(action)
        if picker is None or slot is None:
            reserve_worker(tick, group, action)
            order.drop(ready)
            continue
        order.skip()
        tick.take(group, action, slot.member)
        cursor.served += 1
        served.append(Nomination(action, picker, slot))
        if not group.replica_of:
            order.charge(slot.estimate.fair_nanousd)
    return served


def groups_to_retry(
    tick: SchedulingCycle, clients: list[GroupCursor], freed: set[int]
) -> list[GroupCursor]:
    """Returns cursors of groups whose remaining actions would use slots vacated on ``freed``."""
    usable: dict[FreeSlots, bool] = {}
    found: list[GroupCursor] = []
    for cursor in clients:
        free_slots, group = cursor.free_slots, cursor.group
        if free_slots.cause is RejectionCause.BUSY and cursor.served < group.count:
            if free_slots not in usable:
                usable[free_slots] = _is_usable(tick, free_slots, freed)
            if usable[free_slots]:
                tick.waiting[group.info.signature] = 0
                found.append(cursor)
    fresh = CandidateFinder(tick)
    return [cursor for cursor in found if _would_use(tick, cursor, fresh)]


def _is_usable(tick: SchedulingCycle, free_slots: FreeSlots, freed: set[int]) -> bool:
    """Whether a worker in ``freed`` has a slot in this cycle; if so, resets the free slots."""
    unmet = tick.unmet(free_slots.like)
    tiers = [free_slots.tier_of(m) for m in freed if unmet[tick.kind_of[m]] is None]
    if not any(tier is not None and tier < WAIT for tier in tiers):
        return False
    if free_slots.sites:
        free_slots.reset()
    return True


def _would_use(tick: SchedulingCycle, cursor: GroupCursor, fresh: CandidateFinder) -> bool:
    """Whether some remaining action of a group would use a slot in this cycle and not wait."""
    if cursor.free_slots.sites:
        picker = cursor.get_picker(tick)
        if picker is not None:
            picker.reset()
    else:
        # The group had no candidates when the cycle began, but the moves may have made some.
        cursor.candidates, cursor.free_slots = fresh, fresh.free_slots(cursor.group)
        picker = cursor.get_picker(tick)
    slot = picker.best() if picker is not None else None
    if picker is None or slot is None or slot.tier < WAIT:
        return slot is not None
    remaining = cursor.group.count - cursor.served
    return picker.count_preferring_to_wait(remaining) < remaining


def _count_preferring_to_wait(tick: SchedulingCycle, picker: SlotPicker, remaining: int) -> int:
    """Returns how many more actions of the signature would rather wait than take the best slot now.

    The number is exact only below ``remaining``.
    """
    waiting = tick.waiting[picker.group.info.signature]
    return floor(min(picker.count_preferring_to_wait(waiting + remaining), MANY)) - waiting


def _wait(order: FairOrder, cursor: GroupCursor, patient: int) -> int:
    """Leaves up to ``patient`` actions of a group unplaced; returns the number left."""
    remaining = cursor.group.count - cursor.served
    if patient >= remaining:
        order.drop(cursor.group.ready)
        return remaining
    return order.skip(patient)


def _slot_for(picker: SlotPicker, action: ReadyAction, now_s: float) -> Slot | None:
    if is_urgent(action):
        return picker.best_by(action, action.deadline_s - now_s)
    return picker.best_slot(action) if action.inputs else picker.best()
