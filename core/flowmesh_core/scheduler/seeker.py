"""Hands out a group's best remaining place, as the tick fills the workers."""

from heapq import heapify, heappop, heapreplace
from math import floor, inf

import msgspec

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.scheduler.accounts import WAIT
from flowmesh_core.scheduler.candidates import with_inputs
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.outlook import NOWHERE, Outlook
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.scheduler.utility import Prospect, Prospects, Scale


class Place(msgspec.Struct, eq=False, gc=False):
    """A place on a worker: ``tier`` is ``WAIT`` or above where it is not to be had in this tick."""

    prospect: Prospect
    member: int
    tier: int


class Seeker:
    """The places of one group in order of utility.

    Only the first entry is held against what is left: where its place turns out to be taken it is
    put back at its next tier, or dropped where there is none. So whether waiting is better is
    judged by places as this group last saw them (ADR 13).
    """

    __slots__ = (
        "_entries",
        "_last",
        "_outlook",
        "_would_wait",
        "group",
        "prospects",
        "scale",
        "sites",
        "tick",
        "utilities",
    )

    def __init__(self, tick: Tick, group: Group, outlook: Outlook, prospects: Prospects) -> None:
        """Takes what its sites would give on the snapshot, and what is left of their places."""
        self.tick = tick
        self.group = group
        self.sites = outlook.sites
        self.prospects = prospects.all
        self.scale = Scale.over(group.weights, prospects)
        self.utilities = prospects.utilities(group.weights)
        self._outlook = outlook
        # (-utility, number of the site, tier); no two have the same number.
        self._entries = [
            (-utility, number, tier)
            for number, (utility, tier) in enumerate(
                zip(self.utilities, prospects.first_tiers, strict=True)
            )
        ]
        heapify(self._entries)
        self._last: Place | None = None
        self._would_wait: float | None = None

    def reset(self) -> None:
        """Looks again at every place, after some became free."""
        self._last = self._would_wait = None
        self._entries = [
            (-self.scale.utility(prospect, tier), number, tier)
            for number, (prospect, tier) in enumerate(
                zip(self.prospects, self._outlook.tiers, strict=True)
            )
            if tier != NOWHERE
        ]
        heapify(self._entries)

    def best(self) -> Place | None:
        """The place of greatest utility; None where not even a lane to wait for is left.

        It leaves the places of single inputs out of account.
        """
        outlook, entries = self._outlook, self._entries
        outlook.look()
        while entries:
            _, number, tier = entries[0]
            if outlook.tiers[number] == tier:
                last, member = self._last, outlook.members[number]
                if last is None or last.member != member or last.tier != tier:
                    last = self._last = Place(self.prospects[number], member, tier)
                return last
            self._put_back(number, outlook.tiers[number])
        return None

    def _put_back(self, number: int, tier: int) -> None:
        """Moves the first entry to the tier that it has now, or drops it."""
        self._would_wait = None
        if tier == NOWHERE:
            heappop(self._entries)
        else:
            worse = -self.scale.utility(self.prospects[number], tier)
            heapreplace(self._entries, (worse, number, tier))

    def top(self) -> float:
        """The greatest utility that any place had on the snapshot; at least one was to be had."""
        there = [
            (utility, -number)
            for number, utility in enumerate(self.utilities)
            if self.prospects[number].first_tier < WAIT
        ]
        prospect = self.prospects[-max(there)[1]]
        return self.scale.utility(prospect, prospect.first_tier)

    def best_for(self, action: ReadyAction) -> Place | None:
        """The best place for an action that may have inputs on some worker."""
        best = self.best()
        for member in self.tick.holders(action):
            known = self.prospect_at(member)
            tier = self._outlook.tier_of(member) if known is not None else None
            if known is None or tier is None:
                continue
            prospect = with_inputs(self.tick, known, action, member)
            utility = self.scale.utility(prospect, tier)
            if best is None or utility > self.scale.utility(best.prospect, best.tier):
                best = Place(prospect, member, tier)
        return best

    def best_by(self, action: ReadyAction, due_s: float) -> Place | None:
        """The best place that finishes within ``due_s`` seconds, else that which finishes first."""
        places: list[Place] = []
        for site, known in zip(self.sites, self.prospects, strict=True):
            for member in site.members:
                tier = self._outlook.tier_of(member)
                if tier is not None:
                    prospect = with_inputs(self.tick, known, action, member)
                    places.append(Place(prospect, member, tier))
        in_time = [p for p in places if p.prospect.finish_s(p.tier) <= due_s]
        if in_time:
            return max(in_time, key=lambda p: (self.scale.utility(p.prospect, p.tier), -p.member))
        return min(places, key=lambda p: (p.prospect.finish_s(p.tier), p.member), default=None)

    def best_now(self, action: ReadyAction) -> Place | None:
        """The best place that can be had in this tick, however good it is to wait."""
        outlook = self._outlook
        there = [e for e in self._entries if e[2] < WAIT and outlook.tiers[e[1]] == e[2]]
        if not there:
            return None
        _, number, tier = min(there)
        member = outlook.members[number]
        prospect = with_inputs(self.tick, self.prospects[number], action, member)
        return Place(prospect, member, tier)

    def would_wait(self) -> float:
        """How many actions would rather wait for a lane than take the best place of this tick.

        Infinity where there is no such place. Asked when the best place of all is one to wait for.
        """
        if self._would_wait is None:
            self._would_wait = self._count_waiting()
        return self._would_wait

    def _count_waiting(self) -> float:
        bound = max([-worth for worth, _, tier in self._entries if tier < WAIT], default=None)
        if bound is None:
            return inf
        count = 0.0
        lowest = -bound
        for worth, number, tier in self._entries:
            if tier >= WAIT and worth <= lowest:
                latest = self.scale.latest_tier(self.prospects[number], bound)
                if latest == inf:
                    return inf
                more = floor(latest) - tier + 1
                if more > 0:
                    count += self._capacity(number) * more
        return count

    def _capacity(self, number: int) -> int:
        signature, accounts = self.group.info.signature, self.tick.accounts
        capacity = 0
        for member in self.sites[number].members:
            lane = accounts[member].lanes.get(signature)
            if lane is not None:
                capacity += lane.capacity
        return capacity

    def prospect_at(self, member: int) -> Prospect | None:
        """The prospect on a worker, its inputs left out of account; None where it is no site's."""
        number = self._outlook.number_of(member)
        return None if number is None else self.prospects[number]
