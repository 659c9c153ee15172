"""Hands out a group's best remaining place, tier by tier, as the tick fills the workers."""

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from math import floor, inf

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.scheduler.accounts import WAIT
from flowmesh_core.scheduler.candidates import Option, Options, with_inputs
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.scheduler.utility import Prospect, Scale

HEADS = 31
"""A heap's n best stand among its first 2^n - 1 entries."""


@dataclass(slots=True, eq=False)
class Place:
    """A place on a worker: ``tier`` is ``WAIT`` or above where it is not to be had in this tick."""

    prospect: Prospect
    member: int
    tier: int


class Seeker:
    """The places of one group in order of utility.

    Places only get worse within a tick (lanes fill, memory goes), so an entry that turns out to be
    taken is put back at its next tier, and what was dropped stays dropped.

    Attributes:
        heads: entries among which the five best on the snapshot are.
    """

    def __init__(self, tick: Tick, group: Group, options: Options, scale: Scale) -> None:
        """Takes the candidates on the snapshot; at least one."""
        self.tick = tick
        self.group = group
        self.options = options.options
        self.scale = scale
        prospects = [option.prospect for option in self.options]
        # [-utility, number of the option, tier, members passed]; no two have the same number.
        self._entries: list[list[float | int]] = [
            [-utility, i, prospects[i].first_tier, 0]
            for i, utility in enumerate(scale.utilities(prospects))
        ]
        heapify(self._entries)
        self.heads = self._entries[:HEADS]
        self._option_of: dict[int, Option] = {}
        self._last: Place | None = None
        self._would_wait: float | None = None

    def reset(self) -> None:
        """Looks again at every place, after some became free."""
        self._last = self._would_wait = None
        self._entries = []
        for number, option in enumerate(self.options):
            tiers = [tier for tier in map(self.tier_of, option.members) if tier is not None]
            if tiers:
                tier = min(tiers)
                utility = self.scale.utility(option.prospect, tier)
                self._entries.append([-utility, number, tier, 0])
        heapify(self._entries)

    def best(self) -> Place | None:
        """The place of greatest utility; None where not even a lane to wait for is left.

        It leaves the places of single inputs out of account.
        """
        entries = self._entries
        while entries:
            entry = entries[0]
            option = self.options[int(entry[1])]
            member = self._advance(entry, option.members)
            if member is not None:
                last = self._last
                if last is None or last.member != member or last.tier != entry[2]:
                    last = self._last = Place(option.prospect, member, int(entry[2]))
                return last
            self._put_back(entry, option)
        return None

    def best_for(self, action: ReadyAction) -> Place | None:
        """The best place for an action that may have inputs on some worker."""
        best = self.best()
        for member in self.tick.holders(action):
            option = self.option_of(member)
            tier = self.tier_of(member) if option is not None else None
            if option is None or tier is None:
                continue
            prospect = with_inputs(self.tick, option, action, member)
            utility = self.scale.utility(prospect, tier)
            if best is None or utility > self.scale.utility(best.prospect, best.tier):
                best = Place(prospect, member, tier)
        return best

    def best_by(self, action: ReadyAction, due_s: float) -> Place | None:
        """The best place that finishes within ``due_s`` seconds, else that which finishes first."""
        places: list[Place] = []
        for option in self.options:
            for member in option.members:
                tier = self.tier_of(member)
                if tier is not None:
                    prospect = with_inputs(self.tick, option, action, member)
                    places.append(Place(prospect, member, tier))
        in_time = [p for p in places if p.prospect.finish_s(p.tier) <= due_s]
        if in_time:
            return max(in_time, key=lambda p: (self.scale.utility(p.prospect, p.tier), -p.member))
        return min(places, key=lambda p: (p.prospect.finish_s(p.tier), p.member), default=None)

    def best_now(self, action: ReadyAction) -> Place | None:
        """The best place that can be had in this tick, however good it is to wait."""
        found: Place | None = None
        found_utility = -inf
        for utility, number, tier, _ in self._entries:
            if tier >= WAIT or -utility < found_utility:
                continue
            option = self.options[int(number)]
            for member in option.members:
                own = self.tier_of(member)
                if own is not None and own <= tier:
                    prospect = with_inputs(self.tick, option, action, member)
                    found, found_utility = Place(prospect, member, own), -utility
                    break
        return found

    def would_wait(self) -> float:
        """How many actions would rather wait for a lane than take the best place of this tick.

        Infinity where there is no such place. Asked when the best place of all is one to wait for.
        """
        if self._would_wait is None:
            self._would_wait = self._count_waiting()
        return self._would_wait

    def _count_waiting(self) -> float:
        now = [-entry[0] for entry in self._entries if entry[2] < WAIT]
        if not now:
            return inf
        bound = max(now)
        count = 0.0
        for utility, number, tier, _ in self._entries:
            option = self.options[int(number)]
            if tier >= WAIT and -utility >= bound:
                latest = self.scale.latest_tier(option.prospect, bound)
                if latest == inf:
                    return inf
                count += self._capacity(option) * max(0, floor(latest) - tier + 1)
        return count

    def _capacity(self, option: Option) -> int:
        signature = self.group.info.signature
        lanes = [self.tick.accounts[m].lanes.get(signature) for m in option.members]
        return sum(lane.capacity for lane in lanes if lane is not None)

    def tier_of(self, member: int) -> int | None:
        """The tier of the next place on a worker for this group; None where there is none."""
        account = self.tick.accounts[member]
        if self.group.replica_of and not account.idle():
            return None
        return account.place_tier(self.group.info, alone=self.group.isolate)

    def option_of(self, member: int) -> Option | None:
        """The option that a worker belongs to."""
        if not self._option_of:
            self._option_of = {m: option for option in self.options for m in option.members}
        return self._option_of.get(member)

    def _advance(self, entry: list[float | int], members: list[int]) -> int | None:
        """The first member from where the entry stands that has a place of the entry's tier."""
        passed = int(entry[3])
        while passed < len(members):
            tier = self.tier_of(members[passed])
            if tier is not None and tier <= entry[2]:
                entry[3] = passed
                return members[passed]
            passed += 1
        return None

    def _put_back(self, entry: list[float | int], option: Option) -> None:
        """Moves the first entry to the next tier that any of its members has, or drops it."""
        self._would_wait = None
        later = [tier for tier in map(self.tier_of, option.members) if tier is not None]
        if later:
            tier = min(later)
            worse = -self.scale.utility(option.prospect, tier)
            heapreplace(self._entries, [worse, entry[1], tier, 0])
        else:
            heappop(self._entries)
