"""The remaining slots of a signature, computed once for all groups that may use them."""

from dataclasses import dataclass, field
from itertools import chain

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.capacity import RUN, WAIT
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.equivalence import EquivalenceClass

NOWHERE = 2**30
"""The tier of a class that has no slot, not even one to wait for."""


@dataclass(slots=True, eq=False)
class FreeSlots:
    """The slots of all groups with one signature and the same cautions.

    Slots only become fewer while a cycle nominates. So a class is examined again only when the
    worker of its next slot has changed, which ``WorkerCapacity.watch`` reports.

    Attributes:
        like: any one of the groups.
        sites: the equivalence classes; empty if none is feasible now.
        cause: why actions are not placed; ``BUSY`` if a worker may become free.
        detail: a sentence for users.
        first_tiers: the tier of each class's next slot on the snapshot. ``here`` has the indexes of
            the classes whose slot is available in this cycle.
        tiers: the tier of each class's next slot, as last examined. ``members`` has the worker of
            that slot.
        best_tier: the best of ``tiers``.
        common_s: seconds of loading that serve later actions and are the same in every class.
    """

    tick: SchedulingCycle
    like: ActionGroup
    sites: list[EquivalenceClass]
    cause: RejectionCause
    detail: str
    first_tiers: list[int] = field(init=False)
    here: list[int] = field(init=False)
    tiers: list[int] = field(init=False)
    members: list[int] = field(init=False)
    best_tier: int = field(init=False)
    common_s: float = field(init=False)
    _at: list[int] = field(init=False)
    _stale: list[int] = field(default_factory=list)
    _numbers: dict[int, int] | None = None

    def __post_init__(self) -> None:
        """Fills the derived fields from the classes."""
        accounts, stale = self.tick.accounts, self._stale
        self.first_tiers = tiers = [site.first_tier for site in self.sites]
        self.here = [number for number, tier in enumerate(tiers) if tier < WAIT]
        self.tiers = tiers.copy()
        self.members = [site.members[0] for site in self.sites]
        self._at = [0] * len(self.sites)
        self.best_tier = min(self.tiers, default=NOWHERE)
        self.common_s = min((site.ahead_s for site in self.sites), default=0.0)
        for number, member in enumerate(self.members):
            accounts[member].watch(stale, number)

    @property
    def numbers(self) -> dict[int, int]:
        """Worker → index of its class, in the snapshot's order."""
        if self._numbers is None:
            pairs = [(m, n) for n, site in enumerate(self.sites) for m in site.members]
            self._numbers = dict(sorted(pairs))
        return self._numbers

    @property
    def full(self) -> bool:
        """Whether there are instances to wait for, but no slot is available in this cycle."""
        return WAIT <= self.best_tier < NOWHERE

    def refresh(self) -> None:
        """Finds the next slot of each class whose worker has changed."""
        if self._stale:
            numbers = self._stale.copy()
            self._stale.clear()
            for number in numbers:
                self._find(number, self.tiers[number], self._at[number])
            self.best_tier = min(self.tiers)

    def reset(self) -> None:
        """Finds the next slot of every class again, after some slots became free."""
        self._stale = []
        for number in range(len(self.sites)):
            self._find(number, RUN, 0)
        self.best_tier = min(self.tiers)

    def tier_of(self, member: int) -> int | None:
        """Returns the tier of the next slot on a worker; None if it has no slot."""
        account, like = self.tick.accounts[member], self.like
        if like.replica_of and not account.idle():
            return None
        if like.bound and not self.tick.admits(like, member):
            return None
        return account.place_tier(like.info, alone=like.isolate)

    def _find(self, number: int, least: int, start: int) -> None:
        """Finds a class's next slot: the first one in the best tier.

        The caller knows that no member has a tier below ``least``, and that the members before
        ``start`` have a higher one.
        """
        members = self.sites[number].members
        found, at = NOWHERE, start
        count = len(members)
        for place in chain(range(start, count), range(start)) if start else range(count):
            tier = self.tier_of(members[place])
            if tier is not None and (tier < found or (tier == found and place < at)):
                found, at = tier, place
                if tier == least:
                    break
        member = members[at]
        self.tiers[number], self.members[number], self._at[number] = found, member, at
        if found != NOWHERE:
            self.tick.accounts[member].watch(self._stale, number)
