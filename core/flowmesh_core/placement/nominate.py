"""Serves the ready actions in fair order, each at its best place."""

from collections.abc import Collection, Iterable
from math import floor
from typing import TYPE_CHECKING

import msgspec

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.placement.action_groups import ActionGroup, is_urgent
from flowmesh_core.placement.candidates import CandidateFinder
from flowmesh_core.placement.capacity import WAIT
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.fair_order import FairOrder
from flowmesh_core.placement.free_slots import FreeSlots
from flowmesh_core.placement.reservations import claim
from flowmesh_core.placement.slot_picker import Slot, SlotPicker
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.fleet.ready_index import ReadyGroup

MANY = 2**40


class GroupCursor(msgspec.Struct, eq=False, gc=False):
    """A group that is to be served.

    Attributes:
        seeker: None until it is asked for, and where no worker has a place or a lane to wait for.
        served: how many of its actions have a place; the others are rejected in the end.
    """

    group: ActionGroup
    candidates: CandidateFinder
    outlook: FreeSlots
    seeker: SlotPicker | None = None
    served: int = 0

    def seek(self, tick: SchedulingCycle) -> SlotPicker | None:
        """The seeker for its turn."""
        if self.seeker is None:
            found = self.candidates.prospects(self.group, self.outlook)
            self.seeker = SlotPicker(tick, self.group, self.outlook, found) if found else None
        return self.seeker


class Nomination(msgspec.Struct, eq=False, gc=False):
    """An action with the place it got."""

    action: ReadyAction
    seeker: SlotPicker
    place: Slot


def clients_of(tick: SchedulingCycle, groups: Iterable[ActionGroup]) -> list[GroupCursor]:
    """The groups with their candidates on the accounts as they are."""
    candidates = CandidateFinder(tick)
    return [GroupCursor(group, candidates, candidates.outlook(group)) for group in groups]


def serve(
    tick: SchedulingCycle, clients: list[GroupCursor], placed: Collection[Digest] = frozenset()
) -> list[Nomination]:
    """Places what fits, in fair order; what is left of a group stays in its queues.

    Groups that no worker can ever run are passed over, and those whose lanes are all full: they
    need no turn, since there is something that they wait for. So are actions that were ``placed``.
    """
    able: dict[ReadyGroup, GroupCursor] = {}
    alike: dict[FreeSlots, list[ReadyGroup]] = {}
    for client in clients:
        outlook, ready = client.outlook, client.group.ready
        if outlook.cause is RejectionCause.BUSY and not outlook.full:
            able[ready] = client
            alike.setdefault(outlook, []).append(ready)
    if not able:
        return []
    snapshot = tick.snapshot
    order = FairOrder(snapshot.ready, able, tick.virtual_time, snapshot.tenant_weights, placed)
    served: list[Nomination] = []
    while (head := order.pop()) is not None:
        action, ready = head
        client = able[ready]
        group, outlook = client.group, client.outlook
        outlook.look()
        if outlook.full:
            order.drop(*alike[outlook])
            continue
        seeker = client.seek(tick) if outlook.best_tier < WAIT else None
        place = _place_for(seeker, action, snapshot.now_s) if seeker else None
        if seeker is not None and place is not None and place.tier >= WAIT:
            patient = _patient(tick, seeker, group.count - client.served)
            if patient > 0:
                tick.waiting[group.info.signature] += _wait(order, client, patient)
                continue
            place = seeker.best_now(action)
        if seeker is None or place is None:
            claim(tick, group, action)
            order.drop(ready)
            continue
        order.skip()
        tick.take(group, action, place.member)
        client.served += 1
        served.append(Nomination(action, seeker, place))
        if not group.replica_of:
            order.charge(place.prospect.nanousd)
    return served


def again(tick: SchedulingCycle, clients: list[GroupCursor], freed: set[int]) -> list[GroupCursor]:
    """The groups with actions left that would use a place which became free on these workers."""
    usable: dict[FreeSlots, bool] = {}
    found: list[GroupCursor] = []
    for client in clients:
        outlook, group = client.outlook, client.group
        if outlook.cause is RejectionCause.BUSY and client.served < group.count:
            if outlook not in usable:
                usable[outlook] = _is_usable(tick, outlook, freed)
            if usable[outlook]:
                tick.waiting[group.info.signature] = 0
                found.append(client)
    fresh = CandidateFinder(tick)
    return [client for client in found if _would_use(tick, client, fresh)]


def _is_usable(tick: SchedulingCycle, outlook: FreeSlots, freed: set[int]) -> bool:
    """Looks at the places again; says whether one that became free is to be had in this tick."""
    unmet = tick.unmet(outlook.like.info)
    tiers = [outlook.tier_of(m) for m in freed if unmet[tick.kind_of[m]] is None]
    if not any(tier is not None and tier < WAIT for tier in tiers):
        return False
    if outlook.sites:
        outlook.reset()
    return True


def _would_use(tick: SchedulingCycle, client: GroupCursor, fresh: CandidateFinder) -> bool:
    """Whether fewer of a group than are left would rather wait."""
    if client.outlook.sites:
        seeker = client.seek(tick)
        if seeker is not None:
            seeker.reset()
    else:
        # It had no candidates on the snapshot; now it has.
        client.candidates, client.outlook = fresh, fresh.outlook(client.group)
        seeker = client.seek(tick)
    place = seeker.best() if seeker is not None else None
    if seeker is None or place is None or place.tier < WAIT:
        return place is not None
    left = client.group.count - client.served
    return seeker.would_wait(left) < left


def _patient(tick: SchedulingCycle, seeker: SlotPicker, left: int) -> int:
    """How many more actions of the signature are better off waiting than in the best place now.

    Where it is ``left`` or more, it does not matter how many.
    """
    waiting = tick.waiting[seeker.group.info.signature]
    return floor(min(seeker.would_wait(waiting + left), MANY)) - waiting


def _wait(order: FairOrder, client: GroupCursor, patient: int) -> int:
    """Leaves up to so many actions of a group unplaced, and says how many."""
    left = client.group.count - client.served
    if patient >= left:
        order.drop(client.group.ready)
        return left
    return order.skip(patient)


def _place_for(seeker: SlotPicker, action: ReadyAction, now_s: float) -> Slot | None:
    if is_urgent(action):
        return seeker.best_by(action, action.deadline_s - now_s)
    return seeker.best_for(action) if action.inputs else seeker.best()
