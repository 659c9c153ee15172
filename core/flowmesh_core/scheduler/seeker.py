"""Hands out a group's best remaining place, tier by tier, as the tick fills the workers."""

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from flowmesh_core.scheduler.accounts import WAIT, WorkerAccount
from flowmesh_core.scheduler.candidates import Option, Options
from flowmesh_core.scheduler.groups import Group


@dataclass(frozen=True, slots=True)
class Place:
    """A place on a worker: ``tier`` is ``WAIT`` or above where it is not to be had in this tick."""

    option: Option
    member: int
    tier: int


class Seeker:
    """The places of one group in order of utility.

    Places only get worse within a tick (lanes fill, memory goes), so an entry that turns out to be
    taken is put back at its next tier, and what was dropped stays dropped.
    """

    def __init__(self, group: Group, options: Options, accounts: list[WorkerAccount]) -> None:
        """Takes the candidates on the snapshot; at least one."""
        if options.scale is None:
            raise ValueError("a seeker needs candidates; reject groups without any")
        self.group = group
        self.options = options.options
        self.scale = options.scale
        self._accounts = accounts
        # [-utility, number of the option, tier, members passed]; no two have the same number.
        self._entries: list[list[float | int]] = [
            [-self.scale.utility(o.prospect, o.prospect.first_tier), i, o.prospect.first_tier, 0]
            for i, o in enumerate(self.options)
        ]
        heapify(self._entries)

    def best(self) -> Place | None:
        """The place of greatest utility; None where not even a lane to wait for is left."""
        while self._entries:
            place = self._resolve(self._entries[0])
            if place is not None:
                return place
        return None

    def best_by(self, due_s: float) -> Place | None:
        """The best place that finishes within ``due_s`` seconds, else that which finishes first."""
        self.best()
        found = [p for p in map(self._peek, sorted(self._entries)) if p is not None]
        for place in found:
            if place.option.prospect.finish_s(place.tier) <= due_s:
                return place
        return min(found, key=lambda p: p.option.prospect.finish_s(p.tier), default=None)

    def only_waiting(self) -> bool:
        """Whether no place is left that could be had in this tick."""
        return all(entry[2] >= WAIT for entry in self._entries)

    def tier_of(self, member: int) -> int | None:
        """The tier of the next place on a worker for this group."""
        account = self._accounts[member]
        if self.group.replica_of and not account.idle():
            return None
        return account.place_tier(self.group.info, alone=self.group.isolate)

    def _resolve(self, entry: list[float | int]) -> Place | None:
        """The place that the first entry stands for; None after moving the entry back or away."""
        option = self.options[int(entry[1])]
        members = option.members
        passed = int(entry[3])
        while passed < len(members):
            tier = self.tier_of(members[passed])
            if tier is not None and tier <= entry[2]:
                entry[3] = passed
                return Place(option, members[passed], tier)
            passed += 1
        later = [tier for tier in map(self.tier_of, members) if tier is not None]
        if later:
            tier = min(later)
            worse = -self.scale.utility(option.prospect, tier)
            heapreplace(self._entries, [worse, entry[1], tier, 0])
        else:
            heappop(self._entries)
        return None

    def _peek(self, entry: list[float | int]) -> Place | None:
        option = self.options[int(entry[1])]
        tiers = [(t, m) for m in option.members if (t := self.tier_of(m)) is not None]
        if not tiers:
            return None
        tier, member = min(tiers)
        return Place(option, member, tier)
