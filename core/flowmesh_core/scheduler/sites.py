"""Where a signature could run: open lanes one by one, identical workers without one as one site.

A site holds what does not depend on the size of an action, so that it is found once a signature
and reused for all sizes and policies.
"""

import msgspec

from flowmesh_core.costmodel import Rate
from flowmesh_core.fleet.ready import Work
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.scheduler.accounts import RUN
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.tick import Tick
from flowmesh_core.scheduler.utility import NEARNESS, Prospect

NANO_HOUR_S = 3600.0
REPLICA_LOAD_S = 5.0
"""A replica opens a lane only where that takes no longer than this, or than it runs itself: the
original, which is late, has begun."""


class Site(msgspec.Struct, eq=False, gc=False):
    """Workers that are one to a signature.

    Attributes:
        members: places in the snapshot, ascending; more than one only where no lane is open.
        load_s: seconds until the lane takes work; ``paid_s`` of them are paid by those who come.
        ahead_s: part of ``load_s`` that serves those who come later.
        remaining_s: seconds until what the lane holds is done.
        batch: actions expected in the lane at once.
        slowdown: by other lanes that work on the same devices, or the same cores.
        near_bytes: bytes of components weighted by nearness.
    """

    members: list[int]
    lane: bool
    first_tier: int
    load_s: float
    paid_s: float
    ahead_s: float
    remaining_s: float
    batch: float
    slowdown: float
    rate: Rate
    price_nanousd_per_hour: int
    near_bytes: float

    def prospect(self, work: Work, needed_bytes: int, fetch_s: float) -> Prospect:
        """What an action of this size would get here, none of its inputs being near."""
        run_s = self.rate.seconds(work) * self.slowdown
        start_s = self.load_s + fetch_s
        lane_s = self.paid_s / self.batch + (run_s + fetch_s) * self.rate.share
        return Prospect(
            start_s=start_s,
            wait_s=max(self.remaining_s, start_s + run_s if self.first_tier == RUN else start_s),
            first_tier=self.first_tier,
            run_s=run_s,
            nanousd=round(self.price_nanousd_per_hour * lane_s / NANO_HOUR_S),
            near_bytes=self.near_bytes,
            needed_bytes=needed_bytes,
            lane=self.lane,
            locality=self.near_bytes / needed_bytes if needed_bytes else 1.0,
            ahead_s=self.ahead_s,
        )


def find_sites(tick: Tick, group: Group) -> list[Site]:
    """The sites of a group's signature on the snapshot, in order of their first member.

    Workers that failed the action are left out unless only they meet the hard constraints.
    """
    unmet = tick.unmet(group.info)
    kinds = [kind for kind, cause in enumerate(unmet) if cause is None]
    excluded = _excluded(tick, group, kinds)
    with_lane = tick.lanes.get(group.info.signature, set())
    sites: list[Site] = []
    cold: dict[tuple[object, ...], Site] = {}
    digests = [digest for digest, _ in group.info.components]
    need_mib = group.info.requirement.memory_mib
    accounts = tick.accounts
    for kind in kinds:
        for member in tick.kinds[kind]:
            account = accounts[member]
            if account.free_mib < need_mib and member not in with_lane:
                continue
            view = account.view
            if excluded and view.name in excluded:
                continue
            if group.replica_of and not account.idle():
                continue
            if member in with_lane:
                site = _site(tick, group, member)
                if site is not None:
                    sites.append(site)
                continue
            key = (kind, tick.busy[member], *map(view.near.get, digests))
            known = cold.get(key)
            if known is not None:
                known.members.append(member)
                continue
            site = _site(tick, group, member)
            if site is not None and not _too_late(group, site):
                cold[key] = site
                sites.append(site)
    return sites


def _too_late(group: Group, site: Site) -> bool:
    """Whether a replica would load for longer than it is worth."""
    if not group.replica_of:
        return False
    return site.load_s > max(REPLICA_LOAD_S, site.rate.seconds(group.work))


def _excluded(tick: Tick, group: Group, kinds: list[int]) -> frozenset[str]:
    if not group.avoid:
        return group.excluded
    workers = tick.snapshot.workers
    others = any(workers[i].name not in group.excluded for kind in kinds for i in tick.kinds[kind])
    return group.excluded if others else group.excluded - group.avoid


def _site(tick: Tick, group: Group, member: int) -> Site | None:
    """One worker as a site; None where its lane is closed to the group or has no room."""
    account = tick.accounts[member]
    info = group.info
    lane = tick.lane(group, account)
    tier = account.place_tier(info, alone=group.isolate)
    if tier is None:
        return None
    shape = account.view.shape
    place = lane if lane is not None else account.new_lane(info)
    sharing = place.held + tick.ready_by_signature[info.signature]
    batch = 1.0 if group.isolate else float(max(1, min(place.capacity, sharing)))
    slowdown = 1.0
    if account.view.lanes:
        others = tick.busy[member] - (1 if lane is not None and lane.held else 0)
        at_once = shape.cpus if shape.device_class == "cpu" else shape.devices
        slowdown = max(1.0, (others + 1) / max(1, at_once))
    if lane is not None and lane.view is not None:
        load_s, paid_s, remaining_s = lane.view.load_remaining_s, 0.0, lane.view.remaining_s
        ahead_s = 0.0
        near = 0.0
        for _, size in info.components:
            near += size
    else:
        load_s = tick.load_s(group, member)
        paid_s = load_s if group.isolate else load_s * batch / max(batch, float(place.capacity))
        ahead_s = 0.0 if group.isolate else load_s * (1.0 - 1.0 / place.capacity)
        remaining_s = 0.0
        held = account.view.near
        near = sum(NEARNESS[held.get(d, Tier.FAR)] * size for d, size in info.components)
    return Site(
        members=[member],
        lane=lane is not None,
        first_tier=tier,
        load_s=load_s,
        paid_s=paid_s,
        ahead_s=ahead_s,
        remaining_s=remaining_s,
        batch=batch,
        slowdown=slowdown,
        rate=tick.rate(group, shape.device_class, batch),
        price_nanousd_per_hour=shape.price_nanousd_per_hour,
        near_bytes=near,
    )
