"""One tick: a snapshot and a cost model in, placements and reasons out.

Pure: the same snapshot and model give the same decision. Called by the control plane's loop, the
laptop mode and the simulator.
"""

from collections import Counter
from typing import TYPE_CHECKING

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Placement, Rejection, Snapshot
from flowmesh_core.placement.action_groups import groups_of
from flowmesh_core.placement.alternatives import Alternatives
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.equivalence import NANO_HOUR_S
from flowmesh_core.placement.local_search import improve
from flowmesh_core.placement.nominate import GroupCursor, Nomination, again, clients_of, serve
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.placement.free_slots import FreeSlots

BACKOFF_DETAIL = "it failed and is tried again after its backoff"


def decide(snapshot: Snapshot, model: CostModel) -> Decision:
    """Places the ready actions, and says for every one that it does not place why not.

    Args:
        snapshot: workers, ready actions and virtual times; it is read only.
        model: predicts; it is read only.

    Returns:
        At most one placement for each worker and signature, whose actions stand in the order in
        which they were served; rejections by (signature, cause, detail) with counts. Every ready
        action is in one placement or counted in one rejection.
    """
    # 1. Index the workers; the ready actions stand in groups that share their scores.
    tick = SchedulingCycle(snapshot, model)
    groups = groups_of(snapshot)
    # 2. Find the feasible workers of every group, and what each would give.
    clients = clients_of(tick, [group for group in groups if not group.replica_of])
    # 3. Serve in fair order: everyone gets the best place that is left.
    served = serve(tick, clients)
    # 4. What is served may change places, so that the sum of utilities grows.
    freed = improve(tick, served)
    # 5. That may leave places which others can use.
    if freed:
        placed = {one.action.action_id for one in served}
        served += serve(tick, again(tick, clients, freed), placed)
    # 6. Replicas of stragglers go where a worker idles after that.
    replicas = clients_of(tick, [group for group in groups if group.replica_of])
    served += serve(tick, replicas)
    # 7. Say it: one batch for each worker and signature, one reason for each group.
    return Decision(_placements(tick, served), _rejections([*clients, *replicas], snapshot))


def _placements(tick: SchedulingCycle, served: list[Nomination]) -> tuple[Placement, ...]:
    batches: dict[tuple[int, str], list[Nomination]] = {}
    for one in served:
        batches.setdefault((one.place.member, one.action.signature), []).append(one)
    others = Alternatives()
    return tuple(_placement(tick, others, member, batch) for (member, _), batch in batches.items())


def _placement(
    tick: SchedulingCycle, others: Alternatives, member: int, batch: list[Nomination]
) -> Placement:
    account = tick.accounts[member]
    signature = batch[0].action.signature
    shape = account.view.shape
    lane = account.lanes[signature]
    at_once = float(min(lane.capacity, lane.held))
    predicted: list[float] = []
    reserve: list[int] = []
    price = shape.price_nanousd_per_hour / NANO_HOUR_S
    like = batch[0].seeker.group
    rate = tick.rate(like, shape.device_class, at_once)
    for one in batch:
        prospect = one.place.prospect
        if one.seeker.group is not like:
            like = one.seeker.group
            rate = tick.rate(like, shape.device_class, at_once)
        seconds = rate.seconds(one.action.work)
        once_s = 0.0 if prospect.lane else prospect.start_s / len(batch)
        predicted.append(seconds)
        reserve.append(round(price * (seconds * rate.p95_ratio * rate.share + once_s)))
    first = batch[0]
    terms = first.seeker.scale.terms(first.place.prospect, first.place.tier)
    return Placement(
        worker=account.view.name,
        signature=signature,
        actions=tuple(one.action.action_id for one in batch),
        terms=terms,
        predicted_s=tuple(predicted),
        reserve_nanousd=tuple(reserve),
        candidates=others.candidates(first.seeker, first.place, terms),
    )


def _rejections(clients: list[GroupCursor], snapshot: Snapshot) -> tuple[Rejection, ...]:
    counts = Counter[tuple[str, RejectionCause, str]]()
    for _, _, action in snapshot.ready.backoff:
        counts[action.signature, RejectionCause.BACKOFF, BACKOFF_DETAIL] += 1
    alike: dict[FreeSlots, int] = {}
    for client in clients:
        left = client.group.count - client.served
        if left:
            alike[client.outlook] = alike.get(client.outlook, 0) + left
    for outlook, left in alike.items():
        counts[outlook.like.info.signature, outlook.cause, outlook.detail] += left
    return tuple(
        Rejection(Digest(signature), cause, count, detail)
        for (signature, cause, detail), count in sorted(counts.items())
    )
