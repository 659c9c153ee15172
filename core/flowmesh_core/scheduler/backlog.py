"""The autoscaling signal: predicted remaining seconds of work by pool (DESIGN §6).

Read by the operator's pools every second. Every ready action counts in exactly one pool: the one
that could run it at the best utility, judged on a worker of the pool's shape that holds nothing, so
that a pool without any worker is seen too. What runs counts where it runs. ``Hysteresis`` turns the
signal into a number of workers and is the only state.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from flowmesh_core.costmodel import CostKey, CostModel, Rate
from flowmesh_core.fleet.ready import Work
from flowmesh_core.fleet.snapshot import Snapshot, Tier, WorkerView
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.scheduler.accounts import RUN, lane_capacity
from flowmesh_core.scheduler.constraints import unmet
from flowmesh_core.scheduler.groups import Group, groups_of
from flowmesh_core.scheduler.sites import NANO_HOUR_S
from flowmesh_core.scheduler.utility import NEARNESS, Prospect, Prospects, share_near
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool that can grow.

    Attributes:
        shape: what one of its workers is (the name does not matter).
        start_s: predicted seconds from asking for a worker until it connects.
        target_s: seconds of work that one worker may have before it.
        near: components that a new worker would find on its disk: a claim's, a paused machine's.
    """

    name: str
    shape: WorkerShape
    minimum: int = 0
    maximum: int = 1
    start_s: float = 0.0
    target_s: float = 60.0
    near: frozenset[Digest] = frozenset()

    @property
    def most_s(self) -> float:
        """Worker-seconds of work that it may have before it when it has grown to its maximum."""
        return self.maximum * max(self.target_s, self.start_s)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a pool has before it.

    Attributes:
        running_s: worker-seconds until what its workers hold is done.
        ready_s: worker-seconds of the ready actions assigned to it, as shares of full lanes.
        load_s: seconds to open the lanes that these need.
        actions: ready actions assigned to it.
        busy: workers that hold something; the pool never shrinks below them.
        pressed: workers without which deadlines of its actions would be missed.
    """

    running_s: float = 0.0
    ready_s: float = 0.0
    load_s: float = 0.0
    actions: int = 0
    busy: int = 0
    pressed: int = 0

    @property
    def seconds(self) -> float:
        """The signal: worker-seconds of running and ready work."""
        return self.running_s + self.ready_s + self.load_s


def backlog_of(
    snapshot: Snapshot, model: CostModel, pools: Sequence[PoolView]
) -> dict[str, Backlog]:
    """The signal of every pool.

    Args:
        snapshot: of the machine; its workers name their pools.
        model: predicts.
        pools: those that can grow; ready actions that none can run count nowhere (their rejection
            says why), actions in backoff count when they are due.
    """
    running = _running(snapshot)
    found = {pool.name: running.get(pool.name, Backlog()) for pool in pools}
    groups = [group for group in groups_of(snapshot) if not group.replica_of]
    ready = Counter[Digest]()
    for group in groups:
        ready[group.info.signature] += group.count
    opened = {signature for worker in snapshot.workers for signature in worker.lanes}
    able: dict[Digest, list[_Empty]] = {}
    for group in groups:
        signature = group.info.signature
        if signature not in able:
            able[signature] = _empty_workers(group, ready[signature], model, pools)
        chosen = _choose(group, able[signature], found)
        if chosen is not None:
            pool, prospect = chosen
            load_s = 0.0 if signature in opened else prospect.start_s
            opened.add(signature)
            found[pool.name] = _with_group(found[pool.name], snapshot, group, prospect, load_s)
    return found


def _running(snapshot: Snapshot) -> dict[str, Backlog]:
    found: dict[str, Backlog] = {}
    for worker in snapshot.workers:
        remaining_s = max(
            (lane.remaining_s for lane in worker.lanes.values() if lane.held), default=None
        )
        known = found.get(worker.shape.pool, Backlog())
        if remaining_s is not None:
            known = Backlog(running_s=known.running_s + remaining_s, busy=known.busy + 1)
        found[worker.shape.pool] = known
    return found


@dataclass(frozen=True, slots=True)
class _Empty:
    """An empty worker of a pool as all actions of a signature see it: a full lane to be loaded."""

    pool: PoolView
    rate: Rate
    load_s: float
    paid_load_s: float
    needed: int
    near: int

    def prospect(self, work: Work) -> Prospect:
        """What an action of a size would get; ``run_s`` is its share of the lane."""
        share_s = self.rate.seconds(work) * self.rate.share
        paid_s = share_s + self.paid_load_s
        return Prospect(
            start_s=self.load_s,
            wait_s=self.load_s,
            first_tier=RUN,
            run_s=share_s,
            nanousd=round(self.pool.shape.price_nanousd_per_hour * paid_s / NANO_HOUR_S),
            near_bytes=NEARNESS[Tier.DISK] * self.near,
            needed_bytes=self.needed,
            lane=False,
            locality=share_near(0.0, self.needed),
        )


def _empty_workers(
    group: Group, ready: int, model: CostModel, pools: Sequence[PoolView]
) -> list[_Empty]:
    """The pools whose workers can run a signature's actions, of which so many are ready."""
    found = []
    key, size = CostKey.of(group.info), group.work.component_bytes
    needed = sum(n for _, n in group.info.components)
    for pool in pools:
        if unmet(group.info.requirement, pool.shape) is not None:
            continue
        kind = pool.shape.device_class
        capacity = float(min(lane_capacity(group.info, None, kind), ready))
        near = sum(n for digest, n in group.info.components if digest in pool.near)
        load_s = model.load_s(key, kind, size) + model.fetch_s(needed - near)
        rate = model.rate(key, kind, size, capacity)
        paid_s = load_s / float(lane_capacity(group.info, None, kind))
        found.append(_Empty(pool, rate, load_s, paid_s, needed, near))
    return found


def _choose(
    group: Group, able: Sequence[_Empty], found: Mapping[str, Backlog]
) -> tuple[PoolView, Prospect] | None:
    """The pool whose empty worker has the best utility for the group; the first of equals.

    A pool that cannot grow any further and has its fill of work is passed over while another is
    left: what it cannot take in time would be seen by nobody else.
    """
    if not able:
        return None
    prospects = [empty.prospect(group.work) for empty in able]
    if len(able) == 1:
        return able[0].pool, prospects[0]
    utilities = Prospects(prospects).utilities(group.weights)
    open_ = [i for i, e in enumerate(able) if found[e.pool.name].seconds < e.pool.most_s]
    best = max(open_ or range(len(able)), key=lambda i: (utilities[i], -i))
    return able[best].pool, prospects[best]


def _with_group(
    known: Backlog, snapshot: Snapshot, group: Group, prospect: Prospect, load_s: float
) -> Backlog:
    """Adds a group to a pool's backlog, and the opening of its lane where none is open."""
    return Backlog(
        running_s=known.running_s,
        ready_s=known.ready_s + prospect.run_s * group.count,
        load_s=known.load_s + load_s,
        actions=known.actions + group.count,
        busy=known.busy,
        pressed=max(known.pressed, _pressed(snapshot, group, prospect)),
    )


def _pressed(snapshot: Snapshot, group: Group, prospect: Prospect) -> int:
    """Workers needed so that the group's actions end by their deadlines, tightest first."""
    deadlines = sorted(action.deadline_s for action in group.ready if action.deadline_s != inf)
    needed = 0
    for number, deadline_s in enumerate(deadlines, start=1):
        left_s = deadline_s - snapshot.now_s - prospect.start_s
        if left_s > 0.0:
            needed = max(needed, ceil(number * prospect.run_s / left_s))
    return needed


class Hysteresis:
    """Turns a pool's backlog into a number of workers that does not flap.

    It grows at once and shrinks when fewer have been enough for ``calm_s``. State of one pool, held
    by who scales it and lost without harm.
    """

    def __init__(self, *, target_s: float = 60.0, calm_s: float = 120.0) -> None:
        """Takes the seconds of work that a worker may have before it, and the time to shrink.

        Raises:
            ValueError: ``target_s`` is not positive.
        """
        if target_s <= 0.0:
            raise ValueError(f"target_s is {target_s}; give the seconds of work a worker may have")
        self.target_s = target_s
        self.calm_s = calm_s
        self._asked: list[tuple[float, int]] = []

    def remember(self, workers: int, now_s: float) -> None:
        """So many are taken as wanted now: who begins to look does not shrink at once."""
        self._asked.append((now_s, workers))

    def workers(self, pool: PoolView, backlog: Backlog, current: int, now_s: float) -> int:
        """How many workers the pool should have.

        Args:
            pool: its bounds.
            backlog: of this tick.
            current: workers that are connected or on their way.
            now_s: the time.

        Returns:
            A number between the pool's bounds, never below the busy workers (unless those exceed
            the maximum, which then was lowered: they drain).
        """
        wanted = ceil(backlog.seconds / max(self.target_s, pool.start_s))
        wanted = max(wanted, backlog.pressed, 1 if backlog.actions else 0)
        wanted = max(pool.minimum, min(pool.maximum, wanted))
        self._asked = [(t, n) for t, n in self._asked if now_s - t < self.calm_s and n > wanted]
        self._asked.append((now_s, wanted))
        kept = min(current, max(n for _, n in self._asked))
        return max(wanted, min(pool.maximum, max(kept, backlog.busy)))


def pool_views(workers: Sequence[WorkerView], maximum: Mapping[str, int]) -> list[PoolView]:
    """Pools as their connected workers show them; for fleets that declare none (the laptop)."""
    shapes: dict[str, WorkerShape] = {}
    for worker in workers:
        shapes.setdefault(worker.shape.pool, worker.shape)
    return [PoolView(n, shape, maximum=maximum.get(n, 1)) for n, shape in sorted(shapes.items())]
