"""Finds where a signature could run, as classes of equivalent workers.

Each worker with an open instance is a class of its own; equal workers without an instance form one
class. A class holds only values that do not depend on the size of an action, so it is computed once
per signature and used for all sizes and policies.
"""

import msgspec

from flowmesh_core.costmodel import Rate
from flowmesh_core.fleet.snapshot import SignatureInfo, Tier
from flowmesh_core.placement.action_groups import ActionGroup
from flowmesh_core.placement.capacity import InstanceCapacity
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.settings import REPLICA_LOAD_MAX_S
from flowmesh_core.placement.utility import NEARNESS
from flowmesh_core.units import Digest

NANO_HOUR_S = 3600.0


class EquivalenceClass(msgspec.Struct, eq=False, gc=False):
    """Workers that are interchangeable for a signature.

    Attributes:
        members: indexes in the snapshot, ascending; more than one only if no instance is open.
        load_s: seconds until the instance takes work. An action pays ``paid_s`` of them.
        ahead_s: the part of ``load_s`` that serves later actions.
        remaining_s: seconds until the instance's current actions are done, if it is to be full.
        slowdown: the factor by which other instances on the same devices or cores slow it down.
        rate: the run time of an action, with the expected number of actions in the instance.
        near_bytes: bytes of components, each weighted by its nearness.
        spot: whether the provider may take the workers away. Loading the engine again then takes
            ``reload_s``.
        pool: the pool of its workers, or another with an equally fast network.
    """

    members: list[int]
    has_instance: bool
    first_tier: int
    load_s: float
    paid_s: float
    ahead_s: float
    remaining_s: float
    slowdown: float
    rate: Rate
    price_nanousd_per_hour: int
    near_bytes: float
    spot: bool = False
    reload_s: float = 0.0
    pool: str = ""


def find_classes(tick: SchedulingCycle, group: ActionGroup) -> list[EquivalenceClass]:
    """Returns the classes of a group's signature, in order of shape and first member.

    Workers on which the group's actions failed are left out, unless only those workers meet the
    hard constraints. A group of suspects stays on one worker at a time, so that it uses only one
    host.
    """
    info = group.info
    tick.spread(group)
    kinds = [kind for kind, cause in enumerate(tick.unmet(group)) if cause is None]
    excluded = excluded_workers(tick, group, kinds)
    accounts, busy = tick.accounts, tick.busy
    with_instance = tick.workers_with_instance.get(info.signature, ())
    need_mib = info.requirement.memory_mib
    digests = [digest for digest, _ in info.components]
    all_bytes = float(sum([size for _, size in info.components]))
    sites: list[EquivalenceClass] = []
    cold: dict[tuple[object, ...], EquivalenceClass] = {}
    for kind in kinds:
        for member in _members(tick, info, kind):
            account = accounts[member]
            if member not in with_instance and account.free_mib < need_mib:
                continue
            barred = group.bound and not tick.admits(group, member)
            if barred or (excluded and account.view.name in excluded):
                continue
            if group.replica_of and not account.idle():
                continue
            if member in with_instance:
                found = _open(tick, group, member, all_bytes)
                if found is not None:
                    sites.append(found)
                continue
            asleep = info.signature in account.view.asleep
            key = (kind, busy[member], asleep, *tick.holders.tiers(digests, member))
            known = cold.get(key)
            if known is not None:
                known.members.append(member)
                continue
            found = _cold(tick, group, member)
            if found is not None and not _too_late(group, found):
                cold[key] = found
                sites.append(found)
    return sites


def _members(tick: SchedulingCycle, info: SignatureInfo, kind: int) -> list[int]:
    """Returns the workers of a shape. Suspects that already run may only use their own worker."""
    if not info.suspects_of or info.signature not in tick.running:
        return tick.kinds[kind]
    return [member for member in tick.kinds[kind] if tick.accounts[member].runs(info)]


def _too_late(group: ActionGroup, site: EquivalenceClass) -> bool:
    """Whether loading would take too long for a replica attempt to be worthwhile."""
    if not group.replica_of:
        return False
    return site.load_s > max(REPLICA_LOAD_MAX_S, site.rate.seconds(group.work))


def excluded_workers(tick: SchedulingCycle, group: ActionGroup, kinds: list[int]) -> frozenset[str]:
    """Returns the workers that a group must not use, given the shapes that can run it."""
    if not group.avoid_workers:
        return group.excluded
    workers = tick.snapshot.workers
    others = any(workers[i].name not in group.excluded for kind in kinds for i in tick.kinds[kind])
    return group.excluded if others else group.excluded - group.avoid_workers


def _open(
    tick: SchedulingCycle, group: ActionGroup, member: int, near_bytes: float
) -> EquivalenceClass | None:
    """Returns the class of a worker with an instance; None if the group cannot join it."""
    account = tick.accounts[member]
    instance = tick.instance_for(group, account)
    tier = account.place_tier(group.info, alone=group.isolate)
    if tier is None or instance is None or instance.view is None:
        return None
    shape, view = account.view.shape, instance.view
    return EquivalenceClass(
        [member],
        True,
        tier,
        view.load_remaining_s,
        0.0,
        0.0,
        # Beyond its even share, but within its capacity, an instance takes actions at once.
        view.remaining_s if instance.even_share == instance.capacity else 0.0,
        tick.crowded[member][0 if instance.assigned else 1],
        tick.rate(group, shape.device_class, _batch(group, instance)),
        shape.price_nanousd_per_hour,
        near_bytes,
        bool(shape.spot),
        _reload_s(tick, group, member),
        shape.pool,
    )


def _cold(tick: SchedulingCycle, group: ActionGroup, member: int) -> EquivalenceClass | None:
    """Returns the class of a worker without an instance; None if a new one does not fit."""
    account = tick.accounts[member]
    info, view = group.info, account.view
    tier = account.place_tier(info, alone=group.isolate)
    if tier is None:
        return None
    opened = account.instance(info)  # opened by this cycle
    instance = opened if opened is not None else account.new_instance(info)
    batch = _batch(group, instance)
    load_s = tick.open_s(group, member)
    return EquivalenceClass(
        [member],
        opened is not None,
        tier,
        load_s,
        (load_s if group.isolate else load_s * batch / max(batch, float(instance.capacity)))
        / batch,
        0.0 if group.isolate else load_s * (1.0 - 1.0 / instance.capacity),
        0.0,
        tick.crowded[member][0 if instance.assigned else 1] if view.instances else 1.0,
        tick.rate(group, view.shape.device_class, batch),
        view.shape.price_nanousd_per_hour,
        sum([_nearness(tick, d, member) * size for d, size in info.components]),
        bool(view.shape.spot),
        _reload_s(tick, group, member),
        view.shape.pool,
    )


def _nearness(tick: SchedulingCycle, digest: Digest, member: int) -> float:
    return NEARNESS[tick.holders.tier(digest, member) or Tier.FAR]


def _reload_s(tick: SchedulingCycle, group: ActionGroup, member: int) -> float:
    """Returns the seconds to load the engine again if a spot worker is taken away, else 0."""
    return tick.load_s(group, member) if tick.accounts[member].view.shape.spot else 0.0


def _batch(group: ActionGroup, instance: InstanceCapacity) -> float:
    """Returns the number of actions expected in an instance at once, including one of the group."""
    if group.isolate:
        return 1.0
    sharing = max(instance.assigned + 1, instance.even_share)
    return float(sharing if sharing < instance.capacity else instance.capacity)
