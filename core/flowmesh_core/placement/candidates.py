"""Finds the feasible workers of a group with their estimates, or the reason why there are none.

A worker must first meet the hard constraints (``constraints``). It must then have an open instance
of the signature, full or not, or enough memory for a new one without evicting an instance that has
work (``equivalence``).
"""

from functools import partial

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.constraints import CHECKS, remedy
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.equivalence import find_classes
from flowmesh_core.placement.estimates import Estimates, estimates_at
from flowmesh_core.placement.free_slots import FreeSlots
from flowmesh_core.placement.utility import NEARNESS, Estimate

_TENANT = (
    "every worker that can run it runs the user code of another namespace, and none can switch"
    " uids; an idle one is restarted for it, or raise the pool's maxReplicas or set its"
    " spec.sandbox.hostUsers to false"
)


class CandidateFinder:
    """Finds the slots of groups, and shares results between groups with the same restrictions.

    Capacity is read at the first call for a group, so the order of calls matters within a cycle.
    """

    def __init__(self, tick: SchedulingCycle) -> None:
        self._tick = tick
        self._free_slots: dict[tuple[object, ...], FreeSlots] = {}
        self._by_cohort: dict[tuple[object, ...], FreeSlots] = {}
        self._estimates: dict[tuple[object, ...], Estimates] = {}

    def free_slots(self, group: ActionGroup) -> FreeSlots:
        """Returns the slots that a group could take."""
        known = self._by_cohort.get(group.cohort)
        if known is not None:
            return known
        # The longest load that a replica attempt may have depends on its own size, so replica
        # attempts share slots only within a cohort.
        key = (
            group.cautions,
            group.info.signature,
            group.cohort if group.replica_of else group.work.component_bytes,
        )
        found = self._free_slots.get(key)
        if found is None:
            cause, detail = self._reason(group)
            sites = find_classes(self._tick, group) if cause is RejectionCause.BUSY else []
            found = self._free_slots[key] = FreeSlots(self._tick, group, sites, cause, detail)
        self._by_cohort[group.cohort] = found
        return found

    def estimates(self, group: ActionGroup, outlook: FreeSlots) -> Estimates | None:
        """Returns a group's estimate for each equivalence class; None if it has no class.

        Groups that differ only in their weights share the estimates.
        """
        found = self._estimates.get(group.cohort)
        if found is None and outlook.sites:
            large = group.large_bytes
            needed = large
            for _, size in group.info.components:
                needed += size
            fetch_s_in = partial(self._tick.model.fetch_s, large)
            found = Estimates(
                estimates_at(outlook.sites, group.work, needed, fetch_s_in), outlook.common_s
            )
            self._estimates[group.cohort] = found
        return found

    def _reason(self, group: ActionGroup) -> tuple[RejectionCause, str]:
        """Returns ``BUSY`` if some worker could take the group later, else what is missing."""
        tick = self._tick
        unmet = tick.unmet(group)
        able = tick.able(group)
        if able:
            if group.code_tenant and not self._is_admitted(group):
                return RejectionCause.TENANT, _TENANT
            return RejectionCause.BUSY, _busy(able)
        if not tick.shapes:
            text = "no worker is connected; start one or raise a pool's maximum"
            return RejectionCause.NO_WORKERS, text
        if any(cause is None for cause in unmet):
            text = (
                "every worker that can run it is draining or cordoned, or cannot reach the store;"
                " it is placed when one takes work again, or another joins"
            )
            return RejectionCause.DRAINING, text
        last = max((c for c in unmet if c is not None), key=CHECKS.index)
        return last, remedy(group.info.requirement, last, tick.shapes)

    def _is_admitted(self, group: ActionGroup) -> bool:
        """Whether some worker that can run the group admits user code of the group's tenant."""
        tick = self._tick
        return any(
            tick.accounts[member].admits(group.code_tenant)
            for cause, members in zip(tick.unmet(group), tick.kinds, strict=True)
            if cause is None
            for member in members
        )


def _busy(able: int) -> str:
    full = (
        "the worker that can run it is" if able == 1 else f"the {able} workers that can run it are"
    )
    return f"{full} full, or soon better than an idle one"


def with_inputs(
    tick: SchedulingCycle, prospect: Estimate, action: ReadyAction, member: int
) -> Estimate:
    """Returns the estimate for one action, counting the inputs that are near the worker."""
    local = tick.holders.local_inputs(action, member) if action.inputs else ()
    if not local:
        return prospect
    near = sum(NEARNESS[tier] * size for tier, size in local)
    local_bytes = sum(
        size for tier, size in local if tier is not Tier.ZONE and tier is not Tier.FAR
    )
    pool = tick.accounts[member].view.shape.pool
    return prospect.nearer(near, tick.model.fetch_s(local_bytes, pool))
