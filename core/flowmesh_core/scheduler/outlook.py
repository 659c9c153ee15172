"""The places that are left at a signature's sites, found once for all groups that may go there."""

from dataclasses import dataclass, field

from flowmesh_core.fleet.snapshot import RejectionCause
from flowmesh_core.scheduler.accounts import RUN, WAIT, WorkerAccount
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.sites import Site
from flowmesh_core.scheduler.tick import Tick

NOWHERE = 2**30
"""Stands for the tier of a site without any place, not even one to wait for."""


@dataclass(slots=True, eq=False)
class Outlook:
    """What groups may hope for that can go to the same places: one signature, the same cautions.

    Places only get worse while a tick serves, so a site is looked at again when the worker of its
    next place has changed.

    Attributes:
        like: any of the groups.
        sites: empty where none is feasible now.
        cause: the reason for what is not placed; ``BUSY`` where a worker may become free.
        detail: a sentence for users.
        tiers: of each site's next place, as last looked; ``members``: the worker that has it.
        best_tier: the best of the tiers.
        version: another one for every change of the places.
    """

    tick: Tick
    like: Group
    sites: list[Site]
    cause: RejectionCause
    detail: str
    tiers: list[int] = field(init=False)
    members: list[int] = field(init=False)
    best_tier: int = field(init=False)
    version: int = 0
    _watched: list[WorkerAccount] = field(init=False)
    _seen: list[int] = field(init=False)
    _changes: int = -1
    _numbers: dict[int, int] | None = None

    def __post_init__(self) -> None:
        """Takes the sites as they were found."""
        accounts = self.tick.accounts
        self.tiers = [site.first_tier for site in self.sites]
        self.members = [site.members[0] for site in self.sites]
        self._watched = [accounts[member] for member in self.members]
        self._seen = [account.version for account in self._watched]
        self.best_tier = min(self.tiers, default=NOWHERE)

    def number_of(self, member: int) -> int | None:
        """The number of the site that a worker belongs to."""
        if self._numbers is None:
            self._numbers = {m: n for n, site in enumerate(self.sites) for m in site.members}
        return self._numbers.get(member)

    @property
    def full(self) -> bool:
        """Whether there are lanes to wait for, and no place to be had in this tick."""
        return WAIT <= self.best_tier < NOWHERE

    def look(self) -> None:
        """Finds the next places where some have been taken."""
        if self._changes == self.tick.changes:
            return
        self._changes = self.tick.changes
        tiers, before = self.tiers, self.version
        for number, (account, seen) in enumerate(zip(self._watched, self._seen, strict=True)):
            if account.version != seen and tiers[number] != NOWHERE:
                self._find(number, tiers[number])
        if self.version != before:
            self.best_tier = min(tiers)

    def reset(self) -> None:
        """Looks at every place again, after some became free."""
        for number in range(len(self.sites)):
            self._find(number, RUN)
        self.best_tier = min(self.tiers)

    def tier_of(self, member: int) -> int | None:
        """The tier of the next place on a worker; None where there is none."""
        account, like = self.tick.accounts[member], self.like
        if like.replica_of and not account.idle():
            return None
        return account.place_tier(like.info, alone=like.isolate)

    def _find(self, number: int, least: int) -> None:
        """Finds a site's next place; its tier is ``least`` or later."""
        found, at = NOWHERE, self.members[number]
        for member in self.sites[number].members:
            tier = self.tier_of(member)
            if tier is not None and tier < found:
                found, at = tier, member
                if tier == least:
                    break
        if found != self.tiers[number] or at != self.members[number]:
            self.version += 1
        self.tiers[number], self.members[number] = found, at
        account = self._watched[number] = self.tick.accounts[at]
        self._seen[number] = account.version
