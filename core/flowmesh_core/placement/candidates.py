"""The feasible workers of a group with what each is predicted to give, or the reason for none.

Hard constraints first (``constraints``), then what the worker holds: an open lane of the signature,
full or not, or room for a new one without evicting anything that holds work (``sites``).
"""

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.constraints import CHECKS, remedy
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.equivalence import find_sites
from flowmesh_core.placement.estimates import Estimates, prospects_of
from flowmesh_core.placement.free_slots import FreeSlots
from flowmesh_core.placement.utility import NEARNESS, Estimate


class CandidateFinder:
    """Finds the places of groups, sharing what groups have in common."""

    def __init__(self, tick: SchedulingCycle) -> None:
        """Takes the tick; sites are found on its accounts as they are when first asked for."""
        self._tick = tick
        self._outlooks: dict[tuple[object, ...], FreeSlots] = {}
        self._by_cohort: dict[tuple[object, ...], FreeSlots] = {}
        self._prospects: dict[tuple[object, ...], Estimates] = {}

    def outlook(self, group: ActionGroup) -> FreeSlots:
        """Where a group could go."""
        known = self._by_cohort.get(group.cohort)
        if known is not None:
            return known
        # How long a replica may load depends on its own size.
        key = (
            group.cautions,
            group.info.signature,
            group.cohort if group.replica_of else group.work.component_bytes,
        )
        found = self._outlooks.get(key)
        if found is None:
            cause, detail = self._reason(group)
            sites = find_sites(self._tick, group) if cause is RejectionCause.BUSY else []
            found = self._outlooks[key] = FreeSlots(self._tick, group, sites, cause, detail)
        self._by_cohort[group.cohort] = found
        return found

    def prospects(self, group: ActionGroup, outlook: FreeSlots) -> Estimates | None:
        """What each of a group's sites would give; None where there are none.

        Groups that differ in their weights alone share them.
        """
        found = self._prospects.get(group.cohort)
        if found is None and outlook.sites:
            large = group.large_bytes
            needed = large
            for _, size in group.info.components:
                needed += size
            fetch_s = self._tick.model.fetch_s(large)
            found = Estimates(
                prospects_of(outlook.sites, group.work, needed, fetch_s), outlook.common_s
            )
            self._prospects[group.cohort] = found
        return found

    def _reason(self, group: ActionGroup) -> tuple[RejectionCause, str]:
        """``BUSY`` where any worker could take the group in time, else what the nearest lacks."""
        tick = self._tick
        unmet = tick.unmet(group.info)
        able = tick.able(group.info)
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


def with_inputs(
    tick: SchedulingCycle, prospect: Estimate, action: ReadyAction, member: int
) -> Estimate:
    """The prospect on a worker that may hold inputs of this very action."""
    held = tick.holders.held(action, member) if action.inputs else ()
    if not held:
        return prospect
    near = sum(NEARNESS[tier] * size for tier, size in held)
    here = sum(size for tier, size in held if tier is not Tier.ZONE and tier is not Tier.FAR)
    return prospect.nearer(near, tick.model.fetch_s(here))
