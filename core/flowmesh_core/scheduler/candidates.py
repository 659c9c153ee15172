"""The feasible workers of a group with what each is predicted to give, or the reason for none.

Hard constraints first (``constraints``), then what the worker holds: an open lane of the signature,
full or not, or room for a new one without evicting anything that holds work (``sites``).
"""

from dataclasses import dataclass

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import RejectionCause, Tier
from flowmesh_core.scheduler.constraints import CHECKS, remedy
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.outlook import Outlook
from flowmesh_core.scheduler.sites import find_sites
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.scheduler.utility import NEARNESS, Prospect, Prospects


@dataclass(slots=True, eq=False)
class Option:
    """Workers that are one to a group, and the prospect on any of them."""

    members: list[int]
    prospect: Prospect


class Offers:
    """The options of groups that differ in their weights alone, in order of their first member."""

    __slots__ = ("by_member", "options", "prospects")

    def __init__(self, options: list[Option]) -> None:
        """Takes at least one."""
        self.options = options
        self.by_member = {member: option for option in options for member in option.members}
        self.prospects = Prospects([option.prospect for option in options])


class Candidates:
    """Finds the places of groups, sharing what groups have in common."""

    def __init__(self, tick: Tick) -> None:
        """Takes the tick; sites are found on its accounts as they are when first asked for."""
        self._tick = tick
        self._outlooks: dict[tuple[object, ...], Outlook] = {}
        self._offers: dict[tuple[object, ...], Offers] = {}

    def outlook(self, group: Group) -> Outlook:
        """Where a group could go."""
        work = group.work
        key = (group.cautions, group.info.signature, work.component_bytes)
        found = self._outlooks.get(key)
        if found is None:
            cause, detail = self._reason(group)
            sites = find_sites(self._tick, group) if cause is RejectionCause.BUSY else []
            found = self._outlooks[key] = Outlook(self._tick, group, sites, cause, detail)
        return found

    def offers(self, group: Group) -> Offers | None:
        """What a group's sites would give; None where there are none."""
        found = self._offers.get(group.cohort)
        sites = self.outlook(group).sites
        if found is None and sites:
            large = group.large_bytes
            needed = sum(size for _, size in group.info.components) + large
            fetch_s = self._tick.model.fetch_s(large)
            found = self._offers[group.cohort] = Offers(
                [Option(site.members, site.prospect(group, needed, fetch_s)) for site in sites]
            )
        return found

    def _reason(self, group: Group) -> tuple[RejectionCause, str]:
        """``BUSY`` where any worker could take the group in time, else what the nearest lacks."""
        tick = self._tick
        unmet = tick.unmet(group.info)
        able = len(tick.able(group.info))
        if able:
            return RejectionCause.BUSY, _busy(able)
        if not tick.shapes:
            text = "no worker is connected; start one or raise a pool's maximum"
            return RejectionCause.NO_WORKERS, text
        if any(cause is None for cause in unmet):
            text = "every worker that can run it is draining; it is placed when another joins"
            return RejectionCause.DRAINING, text
        worst = max((c for c in unmet if c is not None), key=CHECKS.index)
        return worst, remedy(group.info.requirement, worst, tick.shapes)


def _busy(able: int) -> str:
    full = (
        "the worker that can run it is" if able == 1 else f"the {able} workers that can run it are"
    )
    return f"{full} full, or soon better than an idle one"


def with_inputs(tick: Tick, option: Option, action: ReadyAction, member: int) -> Prospect:
    """The prospect on a worker that may hold inputs of this very action."""
    held = tick.holders(action).get(member)
    if held is None:
        return option.prospect
    near = sum(NEARNESS[tier] * size for tier, size in held)
    here = sum(size for tier, size in held if tier not in {Tier.ZONE, Tier.FAR})
    return option.prospect.nearer(near, tick.model.fetch_s(here))
