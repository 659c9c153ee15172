"""Runs one scheduling cycle: a snapshot and a cost model in, placements and rejections out.

The function is pure: the same snapshot and model give the same decision. The control plane's loop
and the simulator call it.
"""

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import Decision, Placement, Rejection, Snapshot
from flowmesh_core.placement.action_groups import ActionGroup, groups_of
from flowmesh_core.placement.alternatives import Alternatives
from flowmesh_core.placement.bound_reservations import reserve_in_bounds
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.equivalence import NANO_HOUR_S
from flowmesh_core.placement.local_search import improve
from flowmesh_core.placement.nominate import (
    GroupCursor,
    Nomination,
    cursors_of,
    groups_to_retry,
    nominate,
)
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.placement.free_slots import FreeSlots

BACKOFF_DETAIL = "it failed and is tried again after its backoff"
_Restrictions = tuple[int, str, tuple[str, ...], tuple[str, ...]]
"""A group's trust, tenant of user code, reserved pools, and tenants with a limit on workers."""


def code_quota_text(most: int) -> str:
    """Returns the reason for users if an action waits because of its quota of user-code calls."""
    if not most:
        return (
            "the namespace's quota allows no calls of user code; ask an administrator for a larger "
            "userCodeCalls"
        )
    return (
        f"the namespace runs as many calls of user code as its quota allows ({most}); it starts "
        "when one has ended, or ask an administrator for a larger userCodeCalls"
    )


def decide(snapshot: Snapshot, model: CostModel) -> Decision:
    """Places the ready actions, and gives a reason for each action that it does not place.

    Args:
        snapshot: workers, ready actions and virtual times; only read.
        model: predicts durations and loading times; only read.

    Returns:
        At most one placement for each worker and signature, with its actions in the order of
        nomination; and rejections, counted by signature, cause, detail and restrictions. Every
        ready action is in exactly one placement or counted in exactly one rejection.
    """
    # 1. Index the workers. Ready actions are handled by group, since a group shares its scores.
    tick = SchedulingCycle(snapshot, model)
    groups = groups_of(snapshot)
    reserve_in_bounds(tick, groups)
    # 2. Find the feasible workers of every group.
    clients = cursors_of(tick, [group for group in groups if not group.replica_of])
    # 3. Nominate in fair order: each action gets the best remaining slot.
    served = nominate(tick, clients)
    # 4. Local search: move nominated actions while the sum of utilities grows.
    freed = improve(tick, served)
    # 5. Moves may have vacated slots that actions without a slot can use: nominate once more.
    if freed:
        placed = {one.action.action_id for one in served}
        served += nominate(tick, groups_to_retry(tick, clients, freed), placed)
    # 6. Replica attempts come last, since they may only take workers that are still idle.
    replicas = cursors_of(tick, [group for group in groups if group.replica_of])
    served += nominate(tick, replicas)
    # 7. Report one placement for each worker and signature, and one reason for each group.
    return Decision(_placements(tick, served), _rejections([*clients, *replicas], tick))


def _placements(tick: SchedulingCycle, served: list[Nomination]) -> tuple[Placement, ...]:
    batches: dict[tuple[int, str], list[Nomination]] = {}
    for one in served:
        batches.setdefault((one.slot.member, one.action.signature), []).append(one)
    others = Alternatives()
    return tuple(_placement(tick, others, member, batch) for (member, _), batch in batches.items())


def _placement(
    tick: SchedulingCycle, others: Alternatives, member: int, batch: list[Nomination]
) -> Placement:
    account = tick.accounts[member]
    signature = batch[0].action.signature
    shape = account.view.shape
    instance = account.instances[signature]
    at_once = float(min(instance.capacity, instance.assigned))
    predicted: list[float] = []
    reserve: list[int] = []
    price = shape.price_nanousd_per_hour / NANO_HOUR_S
    group = batch[0].picker.group
    rate = tick.rate(group, shape.device_class, at_once)
    for one in batch:
        estimate = one.slot.estimate
        if one.picker.group is not group:
            group = one.picker.group
            rate = tick.rate(group, shape.device_class, at_once)
        seconds = rate.seconds(one.action.work)
        once_s = 0.0 if estimate.has_instance else estimate.start_s / len(batch)
        predicted.append(seconds)
        reserve.append(round(price * (seconds * rate.p95_ratio * rate.share + once_s)))
    first = batch[0]
    terms = first.picker.scale.terms(first.slot.estimate, first.slot.tier)
    return Placement(
        worker=account.view.name,
        signature=signature,
        actions=tuple(one.action.action_id for one in batch),
        terms=terms,
        predicted_s=tuple(predicted),
        reserve_nanousd=tuple(reserve),
        candidates=others.candidates(first.picker, first.slot, terms),
    )


def _rejections(clients: list[GroupCursor], tick: SchedulingCycle) -> tuple[Rejection, ...]:
    counts = Counter[tuple[str, RejectionCause, str, _Restrictions]]()
    for _, _, action in tick.snapshot.ready.backoff:
        restrictions = _restrictions(action.min_trust, action)
        counts[action.signature, RejectionCause.BACKOFF, BACKOFF_DETAIL, restrictions] += 1
    by_slots: dict[FreeSlots, int] = {}
    for cursor in clients:
        remaining = cursor.group.count - cursor.served
        if remaining:
            by_slots[cursor.free_slots] = by_slots.get(cursor.free_slots, 0) + remaining
    for free_slots, remaining in by_slots.items():
        like = free_slots.like
        restrictions = _restrictions(like.info.requirement.min_trust, like)
        cause, detail = free_slots.cause, free_slots.detail
        if cause is RejectionCause.BUSY and not tick.may_call(like):
            cause = RejectionCause.USER_CODE_QUOTA
            detail = code_quota_text(tick.snapshot.code_calls[like.code_tenant].most)
        elif cause is RejectionCause.BUSY and (quota := tick.worker_quota_text(like)):
            cause, detail = RejectionCause.WORKER_QUOTA, quota
        counts[like.info.signature, cause, detail, restrictions] += remaining
    unset = msgspec.UNSET
    return tuple(
        Rejection(
            Digest(name), cause, count, detail, tenant, trust, pools or unset, bounded or unset
        )
        for (name, cause, detail, (trust, tenant, pools, bounded)), count in sorted(counts.items())
    )


def _restrictions(trust: int, like: ReadyAction | ActionGroup) -> _Restrictions:
    """Returns the restrictions that a rejection reports in addition to the signature."""
    pools, tenants = tuple(sorted(like.reserved_pools)), tuple(sorted(like.bounded_tenants))
    return trust, like.code_tenant, pools, tenants
