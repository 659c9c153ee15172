"""The places that an action had on the snapshot, best first: where an exchange may move it."""

from math import inf

from flowmesh_core.placement.capacity import AHEAD, RUN, WAIT
from flowmesh_core.placement.slot_picker import SlotPicker
from flowmesh_core.placement.utility import Estimate

Spot = tuple[float, int, int]
"""Utility, worker and tier."""


class RankedSlots:
    """(utility, worker, tier) of every place that a group or an action had on the snapshot.

    Attributes:
        top: the greatest utility.
    """

    __slots__ = ("_all", "seeker", "top")

    def __init__(self, seeker: SlotPicker) -> None:
        """Takes the group's seeker."""
        self.seeker = seeker
        self._all: list[Spot] | None = None
        self.top = seeker.top()

    @property
    def all(self) -> list[Spot]:
        """Best first; listed when first asked for, since most items never move."""
        if self._all is None:
            self._all = self._listed()
        return self._all

    def _listed(self) -> list[Spot]:
        return _group_spots(self.seeker)


class LocalRankedSlots(RankedSlots):
    """Those of an action of which some workers hold inputs."""

    __slots__ = ("_known", "_prospects")

    def __init__(self, known: RankedSlots, prospects: dict[int, Estimate]) -> None:
        """Takes those of its group, and its own prospects on the workers that hold inputs."""
        self.seeker = known.seeker
        self._all = None
        self._known = known
        self._prospects = prospects
        others = (utility for utility, member, _ in known.all if member not in prospects)
        scale, there = self.seeker.scale, [p for p in prospects.values() if p.first_tier < WAIT]
        best = [scale.utility(p, p.first_tier) for p in there]
        self.top = max([*best, next(others, -inf)])

    def _listed(self) -> list[Spot]:
        utility, own = self.seeker.scale.utility, self._prospects
        spots = [
            (utility(own[member], tier), member, tier) if member in own else (known, member, tier)
            for known, member, tier in self._known.all
        ]
        return sorted(spots, key=_rank)


def _group_spots(seeker: SlotPicker) -> list[Spot]:
    found = [
        (seeker.scale.utility(prospect, tier), member, tier)
        for site, prospect in zip(seeker.sites, seeker.prospects, strict=True)
        for tier in (RUN, AHEAD)
        if tier >= prospect.first_tier
        for member in site.members
    ]
    return sorted(found, key=_rank)


def _rank(spot: Spot) -> Spot:
    return -spot[0], spot[1], spot[2]
