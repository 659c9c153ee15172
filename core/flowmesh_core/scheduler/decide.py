"""One tick: a snapshot and a cost model in, placements and reasons out.

Pure: the same snapshot and model give the same decision. Called by the control plane's loop, the
laptop mode and the simulator.
"""

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import (
    Decision,
    Placement,
    Rejection,
    RejectionCause,
    Snapshot,
)
from flowmesh_core.scheduler.groups import collect
from flowmesh_core.scheduler.serve import Outcome, Served, serve
from flowmesh_core.scheduler.sites import NANO_HOUR_S
from flowmesh_core.scheduler.tick import Tick

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
    # 1. Index the workers, and collect the actions that can share their scores.
    tick = Tick(snapshot, model)
    groups, backoff = collect(snapshot)
    outcome = Outcome()
    tick.count(groups)
    # 2. What failed of late waits.
    for signature, count in backoff.items():
        outcome.rejected[signature, RejectionCause.BACKOFF, BACKOFF_DETAIL] += count
    # 3. Serve in fair order: feasible workers, their utility, the best place that is left.
    serve(tick, [group for group in groups if not group.replica_of], outcome)
    # 4. Replicas of stragglers go where a worker idles after that.
    serve(tick, [group for group in groups if group.replica_of], outcome)
    # 5. Say it: one batch for each worker and signature, one reason for each group.
    return Decision(_placements(tick, outcome.served), _rejections(outcome))


def _placements(tick: Tick, served: list[Served]) -> tuple[Placement, ...]:
    batches: dict[tuple[int, str], list[Served]] = {}
    for one in served:
        batches.setdefault((one.place.member, one.action.signature), []).append(one)
    return tuple(_placement(tick, member, batch) for (member, _), batch in batches.items())


def _placement(tick: Tick, member: int, batch: list[Served]) -> Placement:
    account = tick.accounts[member]
    signature = batch[0].action.signature
    shape = account.view.shape
    lane = account.lanes[signature]
    at_once = float(min(lane.capacity, lane.held))
    predicted: list[float] = []
    reserve: list[int] = []
    price = shape.price_nanousd_per_hour / NANO_HOUR_S
    for one in batch:
        prospect = one.place.prospect
        rate = tick.rate(one.seeker.group, shape.device_class, at_once)
        seconds = rate.seconds(one.action.work)
        once_s = 0.0 if prospect.lane else prospect.start_s / len(batch)
        predicted.append(seconds)
        reserve.append(round(price * (seconds * rate.p95_ratio * rate.share + once_s)))
    first = batch[0]
    return Placement(
        worker=account.view.name,
        signature=signature,
        actions=tuple(one.action.action_id for one in batch),
        terms=first.seeker.scale.terms(first.place.prospect, first.place.tier),
        predicted_s=tuple(predicted),
        reserve_nanousd=tuple(reserve),
    )


def _rejections(outcome: Outcome) -> tuple[Rejection, ...]:
    return tuple(
        Rejection(signature, cause, count, detail)
        for (signature, cause, detail), count in sorted(outcome.rejected.items())
    )
