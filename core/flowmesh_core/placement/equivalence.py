"""Where a signature could run: open lanes one by one, identical workers without one as one site.

A site holds what does not depend on the size of an action, so that it is found once a signature
and reused for all sizes and policies.
"""

import msgspec

from flowmesh_core.costmodel import Rate
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.capacity import InstanceCapacity
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.settings import REPLICA_LOAD_MAX_S
from flowmesh_core.placement.utility import NEARNESS

NANO_HOUR_S = 3600.0


class EquivalenceClass(msgspec.Struct, eq=False, gc=False):
    """Workers that are one to a signature.

    Attributes:
        members: places in the snapshot, ascending; more than one only where no lane is open.
        load_s: seconds until the lane takes work; an action pays ``paid_s`` of them.
        ahead_s: part of ``load_s`` that serves those who come later.
        remaining_s: seconds until what the lane holds is done.
        slowdown: by other lanes that work on the same devices, or the same cores.
        rate: of actions beside as many as are expected in the lane at once.
        near_bytes: bytes of components weighted by nearness.
    """

    members: list[int]
    lane: bool
    first_tier: int
    load_s: float
    paid_s: float
    ahead_s: float
    remaining_s: float
    slowdown: float
    rate: Rate
    price_nanousd_per_hour: int
    near_bytes: float


def find_sites(tick: SchedulingCycle, group: ActionGroup) -> list[EquivalenceClass]:
    """The sites of a group's signature on the snapshot, in order of kind and first member.

    Workers that failed the action are left out unless only they meet the hard constraints.
    """
    info = group.info
    kinds = [kind for kind, cause in enumerate(tick.unmet(info)) if cause is None]
    excluded = _excluded(tick, group, kinds) if group.avoid or group.replica_of else ()
    accounts, busy = tick.accounts, tick.busy
    with_lane = tick.lanes.get(info.signature, ())
    need_mib = info.requirement.memory_mib
    digests = [digest for digest, _ in info.components]
    all_bytes = float(sum([size for _, size in info.components]))
    sites: list[EquivalenceClass] = []
    cold: dict[tuple[object, ...], EquivalenceClass] = {}
    for kind in kinds:
        for member in tick.kinds[kind]:
            account = accounts[member]
            if member not in with_lane and account.free_mib < need_mib:
                continue
            if excluded and account.view.name in excluded:
                continue
            if group.replica_of and not account.idle():
                continue
            if member in with_lane:
                site = _open(tick, group, member, all_bytes)
                if site is not None:
                    sites.append(site)
                continue
            key = (kind, busy[member], *map(account.view.near.get, digests))
            known = cold.get(key)
            if known is not None:
                known.members.append(member)
                continue
            site = _cold(tick, group, member)
            if site is not None and not _too_late(group, site):
                cold[key] = site
                sites.append(site)
    return sites


def _too_late(group: ActionGroup, site: EquivalenceClass) -> bool:
    """Whether a replica would load for longer than it is worth."""
    if not group.replica_of:
        return False
    return site.load_s > max(REPLICA_LOAD_MAX_S, site.rate.seconds(group.work))


def _excluded(tick: SchedulingCycle, group: ActionGroup, kinds: list[int]) -> frozenset[str]:
    if not group.avoid:
        return group.excluded
    workers = tick.snapshot.workers
    others = any(workers[i].name not in group.excluded for kind in kinds for i in tick.kinds[kind])
    return group.excluded if others else group.excluded - group.avoid


def _open(
    tick: SchedulingCycle, group: ActionGroup, member: int, near_bytes: float
) -> EquivalenceClass | None:
    """A worker with a lane as a site; None where the lane is closed to the group or has no room."""
    account = tick.accounts[member]
    lane = tick.lane(group, account)
    tier = account.place_tier(group.info, alone=group.isolate)
    if tier is None or lane is None or lane.view is None:
        return None
    shape, view = account.view.shape, lane.view
    return EquivalenceClass(
        [member],
        True,
        tier,
        view.load_remaining_s,
        0.0,
        0.0,
        view.remaining_s,
        tick.crowded[member][0 if lane.held else 1],
        tick.rate(group, shape.device_class, _batch(tick, group, lane)),
        shape.price_nanousd_per_hour,
        near_bytes,
    )


def _cold(tick: SchedulingCycle, group: ActionGroup, member: int) -> EquivalenceClass | None:
    """A worker without a lane on the snapshot as a site; None where it has no room for one."""
    account = tick.accounts[member]
    info, view = group.info, account.view
    tier = account.place_tier(info, alone=group.isolate)
    if tier is None:
        return None
    opened = account.lane(info)  # by this tick
    lane = opened if opened is not None else account.new_lane(info)
    batch = _batch(tick, group, lane)
    load_s = tick.load_s(group, member)
    return EquivalenceClass(
        [member],
        opened is not None,
        tier,
        load_s,
        (load_s if group.isolate else load_s * batch / max(batch, float(lane.capacity))) / batch,
        0.0 if group.isolate else load_s * (1.0 - 1.0 / lane.capacity),
        0.0,
        tick.crowded[member][0 if lane.held else 1] if view.lanes else 1.0,
        tick.rate(group, view.shape.device_class, batch),
        view.shape.price_nanousd_per_hour,
        sum([NEARNESS[view.near.get(d, Tier.FAR)] * size for d, size in info.components]),
    )


def _batch(tick: SchedulingCycle, group: ActionGroup, lane: InstanceCapacity) -> float:
    """Actions expected in a lane at once, one of this group among them."""
    if group.isolate:
        return 1.0
    sharing = lane.held + tick.ready_by_signature[group.info.signature]
    return float(sharing if sharing < lane.capacity else lane.capacity)
