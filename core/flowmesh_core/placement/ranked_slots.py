"""Ranks an action's slots on the snapshot, best first. Local search moves actions to them."""

from math import inf

from flowmesh_core.placement.capacity import AHEAD, RUN, WAIT
from flowmesh_core.placement.slot_picker import SlotPicker
from flowmesh_core.placement.utility import Estimate

RatedSlot = tuple[float, int, int]
"""Utility, worker and tier."""


class RankedSlots:
    """The slots of a group or an action on the snapshot.

    Attributes:
        top: the greatest utility.
    """

    __slots__ = ("_all", "seeker", "top")

    def __init__(self, seeker: SlotPicker) -> None:
        self.seeker = seeker
        self._all: list[RatedSlot] | None = None
        self.top = seeker.top()

    @property
    def all(self) -> list[RatedSlot]:
        """The slots, best first. The list is built at first use, since most actions never move."""
        if self._all is None:
            self._all = self._list()
        return self._all

    def _list(self) -> list[RatedSlot]:
        return _slots_of_group(self.seeker)


class LocalRankedSlots(RankedSlots):
    """The slots of an action with inputs near some workers.

    Args:
        known: the slots of its group.
        prospects: the action's own estimates on the workers that are near its inputs.
    """

    __slots__ = ("_estimates", "_group_slots")

    def __init__(self, known: RankedSlots, prospects: dict[int, Estimate]) -> None:
        self.seeker = known.seeker
        self._all = None
        self._group_slots = known
        self._estimates = prospects
        others = (utility for utility, member, _ in known.all if member not in prospects)
        scale, available = self.seeker.scale, [p for p in prospects.values() if p.first_tier < WAIT]
        best = [scale.utility(p, p.first_tier) for p in available]
        self.top = max([*best, next(others, -inf)])

    def _list(self) -> list[RatedSlot]:
        utility, own = self.seeker.scale.utility, self._estimates
        slots = [
            (utility(own[member], tier), member, tier) if member in own else (known, member, tier)
            for known, member, tier in self._group_slots.all
        ]
        return sorted(slots, key=_rank)


def _slots_of_group(picker: SlotPicker) -> list[RatedSlot]:
    found = [
        (picker.scale.utility(estimate, tier), member, tier)
        for site, estimate in zip(picker.sites, picker.estimates, strict=True)
        for tier in (RUN, AHEAD)
        if tier >= estimate.first_tier
        for member in site.members
    ]
    return sorted(found, key=_rank)


def _rank(slot: RatedSlot) -> RatedSlot:
    return -slot[0], slot[1], slot[2]
