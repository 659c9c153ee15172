"""Moves what the order has served to better places, without changing what is served.

The order gives the early ones their best places; a later action may lose more by that than the
early one would by stepping aside. Here actions move to free places, change places, or push others
to their next best, as long as the sum of utilities grows. It ends after a fixed number of looks at
places, so that a tick stays short; on 100 actions and 50 workers it reaches the optimum within 1%.
"""

import msgspec

from flowmesh_core.placement.action_groups import is_urgent
from flowmesh_core.placement.capacity import AHEAD, RUN, InstanceCapacity
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.nominate import Nomination
from flowmesh_core.placement.ranked_slots import LocalRankedSlots, RankedSlots, Spot
from flowmesh_core.placement.settings import LOCAL_SEARCH_LOOKS_MAX
from flowmesh_core.placement.slot_picker import Slot, SlotPicker
from flowmesh_core.units import Digest

EPSILON = 1e-9

At = tuple[int, int]
"""Worker and tier."""


class _Item(msgspec.Struct, eq=False, gc=False):
    """A served action that may move.

    Attributes:
        spots: its places on the snapshot; one object for all that have the very same.
        apart: see ``_is_apart``; None until it is asked for.
        utility: of the place it has, which is at ``spot``.
    """

    served: Nomination
    spots: RankedSlots
    utility: float
    spot: At
    signature: Digest
    apart: bool | None = None

    @property
    def loss(self) -> float:
        """How much better its best place would be."""
        return self.spots.top - self.utility


def improve(tick: SchedulingCycle, served: list[Nomination]) -> set[int]:
    """Raises the sum of utilities by moving actions; changes ``served`` and the accounts.

    Returns:
        The workers that were left by some action, where others may find a place now.
    """
    exchange = _LocalSearch(tick)
    exchange.add(served)
    exchange.run()
    exchange.settle()
    return exchange.left


class _LocalSearch:
    def __init__(self, tick: SchedulingCycle) -> None:
        self._tick = tick
        self._looks = LOCAL_SEARCH_LOOKS_MAX
        self.left: set[int] = set()
        self._spots: dict[SlotPicker, RankedSlots] = {}
        self._items: list[_Item] = []
        self._there: dict[tuple[int, Digest, int], list[_Item]] = {}
        self._pinned: dict[tuple[int, Digest, int], int] = {}

    def add(self, served: list[Nomination]) -> None:
        """Takes the actions that may move: no suspects, replicas or actions with a deadline."""
        # A place that inputs have no part in is one object for all actions of a group there.
        known: dict[Slot, float] = {}
        for one in served:
            place, group = one.place, one.seeker.group
            key = (place.member, one.action.signature, place.tier)
            if group.isolate or group.replica_of or is_urgent(one.action):
                self._pinned[key] = self._pinned.get(key, 0) + 1
                continue
            utility = known.get(place)
            if utility is None:
                prospect = place.prospect
                if one.action.inputs:
                    prospect = one.seeker.prospect(one.action, place.member)
                utility = one.seeker.scale.utility(prospect, place.tier)
                if not one.action.inputs:
                    known[place] = utility
            spot = (place.member, place.tier)
            item = _Item(one, self._spots_of(one), utility, spot, one.action.signature)
            self._items.append(item)
            self._there.setdefault(key, []).append(item)

    def run(self) -> None:
        """Lets those who lost most go first, until nobody gains or the looks are used up."""
        moved = True
        while moved and self._looks > 0:
            moved = False
            losers = [item for item in self._items if item.loss > EPSILON]
            losers.sort(key=lambda item: -item.loss)
            stuck: dict[tuple[RankedSlots | _Item, At], int] = {}
            for item in losers:
                if self._looks <= 0:
                    return
                # Where its like at the same place found nothing better, and nothing has moved
                # since, the looks are spent without looking.
                alike = item if self._is_apart(item) else item.spots
                like, before = (alike, item.spot), self._looks
                if like in stuck:
                    self._looks -= stuck[like]
                elif self._better(item):
                    moved = True
                    stuck.clear()
                else:
                    stuck[like] = before - self._looks

    def settle(self) -> None:
        """Tells those that have moved their places."""
        for item in self._items:
            one, (member, tier) = item.served, item.spot
            if one.place.member != member or one.place.tier != tier:
                one.place = Slot(one.seeker.prospect(one.action, member), member, tier)

    def _spots_of(self, one: Nomination) -> RankedSlots:
        seeker = one.seeker
        known = self._spots.get(seeker)
        if known is None:
            known = self._spots[seeker] = RankedSlots(seeker)
        prospects = seeker.holders(one.action) if one.action.inputs else None
        return LocalRankedSlots(known, prospects) if prospects else known

    def _is_apart(self, item: _Item) -> bool:
        """Whether its spots count as its own though its like have the very same.

        They do where any worker holds an input of it; asked of few items, since all are looked at.
        """
        if item.apart is None:
            action = item.served.action
            item.apart = bool(action.inputs) and self._tick.holders.anywhere(action)
        return item.apart

    def _better(self, item: _Item) -> bool:
        """Moves an item to the best place that makes the sum grow."""
        for utility, member, tier in item.spots.all:
            gain = utility - item.utility
            if gain <= EPSILON or self._looks <= 0:
                return False
            self._looks -= 1
            if (member, tier) == item.spot:
                continue
            if self._is_free(item, member, tier):
                self._move(item, utility, (member, tier))
                return True
            if any(
                self._push(item, (utility, member, tier), victims)
                for victims in self._in_the_way(item, member, tier)
            ):
                return True
        return False

    def _push(self, item: _Item, spot: Spot, victims: list[_Item]) -> bool:
        """Takes a spot from others if they lose less than the item gains; undoes it otherwise."""
        utility, member, tier = spot
        self._looks -= len(victims)
        spare = utility - item.utility
        before = [(one, one.utility, one.spot) for one in (item, *victims)]
        for one in (item, *victims):
            self._leave(one)
        placed: list[_Item] = []
        if self._is_free(item, member, tier):
            self._enter(item, utility, (member, tier))
            placed.append(item)
            for victim in victims:
                found = self._next_best(victim, spare)
                if found is None:
                    break
                spare -= victim.utility - found[0]
                self._enter(victim, found[0], found[1:])
                placed.append(victim)
        if len(placed) == len(before) and spare > EPSILON:
            self.left.update(at[0] for _, _, at in before)
            return True
        for one in placed:
            self._leave(one)
        for one, old, at in before:
            self._enter(one, old, at)
        return False

    def _next_best(self, victim: _Item, spare: float) -> Spot | None:
        """The best free place of one that is pushed, unless it costs more than is there to gain."""
        for utility, member, tier in victim.spots.all:
            if victim.utility - utility >= spare - EPSILON or self._looks <= 0:
                return None
            self._looks -= 1
            if self._is_free(victim, member, tier):
                return utility, member, tier
        return None

    def _in_the_way(self, item: _Item, member: int, tier: int) -> list[list[_Item]]:
        """Sets of items any of which would have to go for the item to get a place."""
        account = self._tick.accounts[member]
        lane = account.lanes.get(item.signature)
        if lane is not None and lane.held:
            there = self._there.get((member, item.signature, tier), [])
            # One with the very same spots would go where the item itself can go.
            others = [
                one
                for one in there
                if one.spots is not item.spots
                or (one is not item and (self._is_apart(item) or self._is_apart(one)))
            ]
            distinct = {(id(one.served.seeker), one.utility): one for one in others}
            return [[one] for one in distinct.values()]
        found: list[list[_Item]] = []
        for signature, other in account.lanes.items():
            held = other.view.held if other.view else 0
            if signature == item.signature or held or not other.held:
                continue
            there = [
                one for t in (RUN, AHEAD) for one in self._there.get((member, signature, t), [])
            ]
            if len(there) == other.held:
                found.append(there)
        return found

    def _is_free(self, item: _Item, member: int, tier: int) -> bool:
        info = item.served.seeker.group.info
        account = self._tick.accounts[member]
        if account.place_tier(info, alone=False) is None:
            return False
        lane = account.lanes.get(item.signature)
        key = (member, item.signature, tier)
        taken = len(self._there.get(key, ())) + self._pinned.get(key, 0)
        return taken < _places(lane if lane is not None else account.new_lane(info), tier)

    def _move(self, item: _Item, utility: float, spot: At) -> None:
        self.left.add(item.spot[0])
        self._leave(item)
        self._enter(item, utility, spot)

    def _leave(self, item: _Item) -> None:
        member, tier = item.spot
        self._there[member, item.signature, tier].remove(item)
        self._tick.accounts[member].give_back(item.served.seeker.group.info)

    def _enter(self, item: _Item, utility: float, spot: At) -> None:
        member, tier = spot
        self._there.setdefault((member, item.signature, tier), []).append(item)
        self._tick.accounts[member].take(item.served.seeker.group.info, alone=False)
        item.utility = utility
        item.spot = spot


def _places(lane: InstanceCapacity, tier: int) -> int:
    """Places of a tier that the snapshot left in a lane."""
    held = lane.view.held if lane.view else 0
    if tier == RUN:
        return max(0, min(lane.capacity, lane.limit) - held)
    return max(0, lane.limit - max(held, lane.capacity))
