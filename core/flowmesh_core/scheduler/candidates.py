"""The feasible workers of a group with what each is predicted to give, or the reason for none.

Hard constraints first (``constraints``), then what the worker holds: an open lane of the signature,
full or not, or room for a new one without evicting anything that holds work.
"""

from collections import Counter
from dataclasses import dataclass
from math import inf

from flowmesh_core.costmodel import CostKey, CostModel, Rate
from flowmesh_core.fleet.snapshot import ReadyAction, RejectionCause, Snapshot, Tier
from flowmesh_core.scheduler.accounts import (
    RUN,
    LaneAccount,
    WorkerAccount,
    open_accounts,
)
from flowmesh_core.scheduler.classes import Feasibility, WorkerClass, classify, near_bytes
from flowmesh_core.scheduler.constraints import CHECKS, remedy
from flowmesh_core.scheduler.groups import Group
from flowmesh_core.scheduler.utility import NEARNESS, Prospect, Scale

NANO_HOUR_S = 3600.0


@dataclass(slots=True)
class Option:
    """A set of workers that are one to this group, and the prospect on any of them."""

    members: list[int]
    prospect: Prospect


@dataclass(slots=True)
class Options:
    """The candidates of a group.

    Attributes:
        options: in order of their first member; empty where none is feasible now.
        scale: None where there are no options.
        cause: why there is none; ``BUSY`` where one may become feasible.
        detail: a sentence for users.
    """

    options: list[Option]
    scale: Scale | None
    cause: RejectionCause
    detail: str


class Tick:
    """What is computed once for all groups of a tick."""

    def __init__(self, snapshot: Snapshot, model: CostModel) -> None:
        """Indexes the workers of the snapshot."""
        self.snapshot = snapshot
        self.model = model
        self.fleet = classify(snapshot)
        self.accounts: list[WorkerAccount] = open_accounts(snapshot.workers)
        self.feasibility = Feasibility(self.fleet)
        self.ready_by_signature = Counter[str]()
        self._rates: dict[tuple[object, ...], Rate] = {}
        self._served: set[str] | None = None

    def count(self, groups: list[Group]) -> None:
        """Notes how many actions of each signature are there to share a lane."""
        for group in groups:
            self.ready_by_signature[group.info.signature] += group.count

    def has_lane(self, group: Group) -> bool:
        """Whether any worker serves the group's signature, by the snapshot or by this tick."""
        signature = group.info.signature
        if group.isolate:
            return False
        if self._served is None:
            self._served = {
                lane.signature
                for worker in self.snapshot.workers
                for lane in worker.lanes.values()
                if lane.held and not worker.draining and not lane.isolated
            }
        return signature in self._served

    def take(self, group: Group, action: ReadyAction, member: int) -> None:
        """Gives an action the next place on a worker."""
        account = self.accounts[member]
        account.take(group.info, alone=group.isolate)
        if action.deadline_s != inf:
            self._guard(group, account, action.deadline_s)

    def wait(self, group: Group, member: int) -> None:
        """Notes that an action stays unplaced because waiting for this worker's lane is best."""
        lane = self.accounts[member].lane(group.info)
        if lane is not None:
            lane.waiting += 1

    def load_s(self, group: Group, account: WorkerAccount) -> float:
        """Seconds until a lane that is opened here would take work."""
        info = group.info
        by_tier = near_bytes(info.components, account.view.near)
        fetch_s = self.model.fetch_s(by_tier.get(Tier.FAR, 0), by_tier.get(Tier.ZONE, 0))
        size = group.first.work.component_bytes
        device_class = account.view.shape.device_class
        return self.model.load_s(CostKey.of(info), device_class, size) + fetch_s

    def rate(self, group: Group, device_class: str, batch: float) -> Rate:
        """The model's prediction as a function of the work, asked once for each combination."""
        size = group.first.work.component_bytes
        key = (group.info.signature, device_class, size, batch)
        found = self._rates.get(key)
        if found is None:
            found = self.model.rate(CostKey.of(group.info), device_class, size, batch)
            self._rates[key] = found
        return found

    def options(self, group: Group) -> Options:
        """The candidates of a group on the snapshot."""
        unmet = self.feasibility.unmet_by_kind(group.info.signature, group.info.requirement)
        fitting = [c for c in self.fleet.classes if unmet[c.kind] is None]
        if not fitting:
            return self._infeasible(group, unmet)
        found: list[Option] = []
        for members, worker_class in self._split(group, fitting):
            prospect = self._prospect(group, worker_class, members[0])
            if prospect is not None:
                found.append(Option(members, prospect))
        if not found:
            return Options(
                [], None, RejectionCause.BUSY, _busy(sum(len(c.members) for c in fitting))
            )
        scale = Scale.over(group.weights, [o.prospect for o in found])
        return Options(found, scale, RejectionCause.BUSY, _busy(len(found)))

    def _split(
        self, group: Group, fitting: list[WorkerClass]
    ) -> list[tuple[list[int], WorkerClass]]:
        """Members by class, without those to avoid; those that hold inputs apart from the rest."""
        workers = self.snapshot.workers
        excluded = {group.replica_of} if group.replica_of else set()
        if group.avoid and any(
            workers[i].name not in group.avoid and workers[i].name not in excluded
            for c in fitting
            for i in c.members
        ):
            excluded |= group.avoid
        if not excluded and not group.holders:
            return [(c.members, c) for c in fitting]
        apart = {index for index, _, _ in group.holders}
        split: list[tuple[list[int], WorkerClass]] = []
        for c in fitting:
            left = [i for i in c.members if i not in apart and workers[i].name not in excluded]
            if left:
                split.append((left, c))
            split.extend(
                ([i], c) for i in c.members if i in apart and workers[i].name not in excluded
            )
        return split

    def _prospect(self, group: Group, worker_class: WorkerClass, member: int) -> Prospect | None:
        """What any of these workers would give; None where it has neither lane nor room."""
        account = self.accounts[member]
        info = group.info
        lane = self._lane(group, account)
        tier = account.place_tier(info, alone=group.isolate)
        if tier is None:
            return None
        if group.replica_of and worker_class.busy_lanes:
            return None
        is_open = lane is not None
        place = lane if lane is not None else account.new_lane(info)
        shape = account.view.shape
        waiting = self.ready_by_signature[info.signature]
        batch = 1.0 if group.isolate else float(min(place.capacity, place.held + waiting))
        rate = self.rate(group, shape.device_class, batch)
        work = group.mean_work()
        run_s = rate.seconds(work)
        if shape.device_class == "cpu":
            others = worker_class.busy_lanes - (1 if lane is not None and lane.held else 0)
            run_s *= max(1.0, (others + 1) / max(1, shape.cpus))
        load_s, once_s = self._loading(group, account, lane)
        inputs_near, inputs_far = _inputs(group, member)
        fetch_s = self.model.fetch_s(inputs_far)
        start_s = load_s + fetch_s
        lane_s = once_s / max(1.0, batch) + (run_s + fetch_s) * rate.share
        near, needed = _nearness(group, account, lane)
        return Prospect(
            load_s=start_s,
            wait_s=_wait_s(place, start_s, run_s, tier),
            first_tier=tier,
            run_s=run_s,
            batch=batch,
            nanousd=round(shape.price_nanousd_per_hour * lane_s / NANO_HOUR_S),
            near_bytes=near + inputs_near,
            needed_bytes=needed + group.large_bytes,
            lane=is_open,
        )

    def _loading(
        self, group: Group, account: WorkerAccount, lane: LaneAccount | None
    ) -> tuple[float, float]:
        """Seconds until the lane takes work, and those that this group's actions would pay."""
        if lane is not None and lane.view is not None:
            return lane.view.load_remaining_s, 0.0
        load_s = self.load_s(group, account)
        return load_s, load_s

    def _lane(self, group: Group, account: WorkerAccount) -> LaneAccount | None:
        """The lane for a group, filled no further than the tightest deadline inside it allows."""
        known = group.info.signature in account.lanes
        lane = account.lane(group.info)
        if not known and lane is not None and lane.view is not None and lane.held:
            due_s = lane.view.tightest_deadline_s - self.snapshot.now_s
            left_s = lane.view.remaining_s
            if left_s <= due_s != inf:
                one_s, more_s = self._growth(group, account, lane)
                now_s = one_s + more_s * lane.held
                lane.guard((due_s / max(left_s, 1e-9) * now_s - one_s) / more_s)
        return lane

    def _guard(self, group: Group, account: WorkerAccount, deadline_s: float) -> None:
        """Keeps the tick from filling a lane so far that the action just placed would be late."""
        lane = account.lanes[group.info.signature]
        start_s = lane.view.load_remaining_s if lane.view else self.load_s(group, account)
        one_s, more_s = self._growth(group, account, lane)
        spare_s = deadline_s - self.snapshot.now_s - start_s - one_s
        if spare_s >= more_s * lane.held:
            lane.guard(spare_s / more_s)

    def _growth(
        self, group: Group, account: WorkerAccount, lane: LaneAccount
    ) -> tuple[float, float]:
        """An action's seconds in this lane as a constant and a part per action in the batch."""
        device_class = account.view.shape.device_class
        full = max(2.0, float(lane.capacity))
        work = group.mean_work()
        alone_s = self.rate(group, device_class, 1.0).seconds(work)
        full_s = self.rate(group, device_class, full).seconds(work)
        more_s = max(1e-9, (full_s - alone_s) / (full - 1.0))
        return alone_s - more_s, more_s

    def _infeasible(self, group: Group, unmet: tuple[RejectionCause | None, ...]) -> Options:
        """The reason that the nearest worker gives."""
        if not self.fleet.shapes:
            text = "no worker is connected; start one or raise a pool's maximum"
            return Options([], None, RejectionCause.NO_WORKERS, text)
        if any(cause is None for cause in unmet):
            text = "every worker that can run it is draining; it is placed when another joins"
            return Options([], None, RejectionCause.DRAINING, text)
        cause = max((c for c in unmet if c is not None), key=CHECKS.index)
        largest = max(shape.device_memory_mib for shape in self.fleet.shapes)
        return Options([], None, cause, remedy(group.info.requirement, cause, largest))


def _busy(count: int) -> str:
    return f"all {count} worker(s) that can run it are full or soon better than an idle one"


def _wait_s(lane: LaneAccount, start_s: float, run_s: float, tier: int) -> float:
    """When a place of the second tier can run: after what runs now or fills the lane first."""
    remaining_s = lane.view.remaining_s if lane.view is not None else 0.0
    return max(remaining_s, start_s + run_s if tier == RUN else start_s)


def _inputs(group: Group, member: int) -> tuple[float, int]:
    """Bytes of inputs near this worker, weighted by nearness, and those that must be fetched."""
    needed = group.large_bytes
    near = 0.0
    held = 0
    for index, tier, size in group.holders:
        if index == member:
            near += size * NEARNESS[tier]
            held += size if tier is not Tier.ZONE else 0
    return near, max(0, needed - held)


def _nearness(group: Group, account: WorkerAccount, lane: LaneAccount | None) -> tuple[float, int]:
    """Bytes of components weighted by nearness, and in all. An open lane has them on its device."""
    needed = sum(size for _, size in group.info.components)
    if lane is not None:
        return float(needed), needed
    by_tier = near_bytes(group.info.components, account.view.near)
    return sum(NEARNESS[tier] * size for tier, size in by_tier.items()), needed
