"""Hands out a group's best remaining place, as the tick fills the workers."""

from math import floor, inf

import msgspec

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.candidates import with_inputs
from flowmesh_core.placement.capacity import WAIT
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.estimates import Estimates
from flowmesh_core.placement.free_slots import NOWHERE, FreeSlots
from flowmesh_core.placement.utility import Estimate

GONE = -inf
"""The utility of a place that is not left, not even to wait for."""


class Slot(msgspec.Struct, eq=False, gc=False):
    """A place on a worker: ``tier`` is ``WAIT`` or above where it is not to be had in this tick."""

    prospect: Estimate
    member: int
    tier: int


class SlotPicker:
    """The places of one group by utility.

    Only the best one is held against what is left: where its place turns out to be taken it counts
    as what its site has now, or no more where that is nothing. So whether waiting is better is
    judged by places as this group last saw them (ADR 13).

    Attributes:
        utilities: of each site's next place on the snapshot.
    """

    __slots__ = (
        "_here",
        "_last",
        "_outlook",
        "_tiers",
        "_worths",
        "_would_wait",
        "group",
        "prospects",
        "scale",
        "sites",
        "tick",
        "utilities",
    )

    def __init__(
        self, tick: SchedulingCycle, group: ActionGroup, outlook: FreeSlots, prospects: Estimates
    ) -> None:
        """Takes what its sites would give on the snapshot, and what is left of their places."""
        self.tick = tick
        self.group = group
        self.sites = outlook.sites
        self.prospects = prospects.all
        self.scale = prospects.scale(group.weights)
        self.utilities = prospects.utilities(group.weights)
        self._outlook = outlook
        # The next place of each site as last seen: its utility, its tier; and the numbers of those
        # that are to be had in this tick.
        self._worths = self.utilities.copy()
        self._tiers = outlook.first_tiers.copy()
        self._here = outlook.here.copy()
        self._last: Slot | None = None
        self._would_wait: float | None = None

    def reset(self) -> None:
        """Looks again at every place, after some became free."""
        self._last = self._would_wait = None
        for number, tier in enumerate(self._outlook.tiers):
            if tier != self._tiers[number]:
                self._see(number, tier)

    def best(self) -> Slot | None:
        """The place of greatest utility; None where not even a lane to wait for is left.

        It leaves the places of single inputs out of account. The outlook must have looked.
        """
        outlook, worths = self._outlook, self._worths
        while (worth := max(worths)) != GONE:
            number = worths.index(worth)
            tier = outlook.tiers[number]
            if self._tiers[number] == tier:
                last, member = self._last, outlook.members[number]
                if last is None or last.member != member or last.tier != tier:
                    last = self._last = Slot(self.prospects[number], member, tier)
                return last
            self._would_wait = None
            self._see(number, tier)
        return None

    def _see(self, number: int, tier: int) -> None:
        """Takes the tier that a site's next place has now."""
        if tier < WAIT:
            if self._tiers[number] >= WAIT:
                self._here.append(number)
        elif self._tiers[number] < WAIT:
            self._here.remove(number)
        self._tiers[number] = tier
        gone = tier == NOWHERE
        self._worths[number] = GONE if gone else self.scale.utility(self.prospects[number], tier)

    def top(self) -> float:
        """The greatest utility that any place had on the snapshot; at least one was to be had."""
        utilities = self.utilities
        return max([utilities[number] for number in self._outlook.here])

    def best_for(self, action: ReadyAction) -> Slot | None:
        """The best place for an action that may have inputs on some worker."""
        best, outlook = self.best(), self._outlook
        numbers = outlook.numbers
        for member in self.tick.holders.among(action, numbers):
            tier = outlook.tier_of(member)
            if tier is None:
                continue
            prospect = with_inputs(self.tick, self.prospects[numbers[member]], action, member)
            utility = self.scale.utility(prospect, tier)
            if best is None or utility > self.scale.utility(best.prospect, best.tier):
                best = Slot(prospect, member, tier)
        return best

    def best_by(self, action: ReadyAction, due_s: float) -> Slot | None:
        """The best place that finishes within ``due_s`` seconds, else that which finishes first."""
        places: list[Slot] = []
        for site, known in zip(self.sites, self.prospects, strict=True):
            for member in site.members:
                tier = self._outlook.tier_of(member)
                if tier is not None:
                    prospect = with_inputs(self.tick, known, action, member)
                    places.append(Slot(prospect, member, tier))
        in_time = [p for p in places if p.prospect.finish_s(p.tier) <= due_s]
        if in_time:
            return max(in_time, key=lambda p: (self.scale.utility(p.prospect, p.tier), -p.member))
        return min(places, key=lambda p: (p.prospect.finish_s(p.tier), p.member), default=None)

    def best_now(self, action: ReadyAction) -> Slot | None:
        """The best place that can be had in this tick, however good it is to wait."""
        outlook, tiers, worths = self._outlook, self._tiers, self._worths
        there = [(-worths[n], n) for n in self._here if outlook.tiers[n] == tiers[n]]
        if not there:
            return None
        number = min(there)[1]
        member = outlook.members[number]
        prospect = with_inputs(self.tick, self.prospects[number], action, member)
        return Slot(prospect, member, tiers[number])

    def would_wait(self, enough: float) -> float:
        """How many actions would rather wait for a lane than take the best place of this tick.

        Asked when the best place of all is one to wait for.

        Returns:
            A number of at least ``enough`` where there are so many; infinity where there is no
            place to be had.
        """
        if self._would_wait is None:
            count = self._count_waiting(enough)
            if count >= enough:
                return count
            self._would_wait = count
        return self._would_wait

    def _count_waiting(self, enough: float) -> float:
        if not self._here:
            return inf
        worths, tiers = self._worths, self._tiers
        bound = max([worths[number] for number in self._here])
        count = 0.0
        for number, worth in enumerate(worths):
            if worth >= bound and (tier := tiers[number]) >= WAIT:
                latest = self.scale.latest_tier(self.prospects[number], bound)
                if latest == inf:
                    return inf
                more = floor(latest) - tier + 1
                if more > 0:
                    count += self._capacity(number) * more
                    if count >= enough:
                        break
        return count

    def _capacity(self, number: int) -> int:
        signature, accounts = self.group.info.signature, self.tick.accounts
        capacity = 0
        for member in self.sites[number].members:
            lane = accounts[member].lanes.get(signature)
            if lane is not None:
                capacity += lane.capacity
        return capacity

    def holders(self, action: ReadyAction) -> dict[int, Estimate]:
        """What an action would get on those of its group's workers that hold inputs of it."""
        numbers = self._outlook.numbers
        return {
            m: with_inputs(self.tick, self.prospects[numbers[m]], action, m)
            for m in self.tick.holders.among(action, numbers)
        }

    def prospect(self, action: ReadyAction, member: int) -> Estimate:
        """What an action would get on one of its group's workers."""
        known = self.prospects[self._outlook.numbers[member]]
        return with_inputs(self.tick, known, action, member)
