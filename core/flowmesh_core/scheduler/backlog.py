"""The autoscaling signal: predicted remaining seconds of work by pool (DESIGN §6).

Read by the operator's pools every second. Every ready action counts in exactly one pool: the one
that could run it at the best utility, judged on a worker of the pool's shape that holds nothing, so
that a pool without any worker is seen too. What runs counts where it runs. ``Hysteresis`` turns the
signal into a number of workers and is the only state.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from flowmesh_core.costmodel import CostKey, CostModel, Rate
from flowmesh_core.fleet.demand import FIRST_GAP_S, WARM_S, Warm
from flowmesh_core.fleet.ready import Work
from flowmesh_core.fleet.snapshot import SignatureInfo, Snapshot, Tier, WorkerView
from flowmesh_core.graph.plan import Weights
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
        warm: workers that hold the lanes of what is in demand.
    """

    running_s: float = 0.0
    ready_s: float = 0.0
    load_s: float = 0.0
    actions: int = 0
    busy: int = 0
    pressed: int = 0
    warm: int = 0

    @property
    def seconds(self) -> float:
        """The signal: worker-seconds of running and ready work."""
        return self.running_s + self.ready_s + self.load_s


def backlog_of(
    snapshot: Snapshot, model: CostModel, pools: Sequence[PoolView], warm: Sequence[Warm] = ()
) -> dict[str, Backlog]:
    """The signal of every pool.

    Args:
        snapshot: of the machine; its workers name their pools.
        model: predicts.
        pools: those that can grow; ready actions that none can run count nowhere (their rejection
            says why), actions in backoff count when they are due.
        warm: signatures in demand: their lanes are to be held open, each by the pool that holds it
            best, and what runs of them counts there.
    """
    return _Signal(snapshot, model, pools, warm).found()


class _Signal:
    """The signal while it is worked out."""

    def __init__(
        self, snapshot: Snapshot, model: CostModel, pools: Sequence[PoolView], warm: Sequence[Warm]
    ) -> None:
        self._snapshot, self._model = snapshot, model
        self._pools = [_with_disks(pool, snapshot.workers) for pool in pools]
        self._warm = {one.info.signature: one for one in warm}
        self._found = {pool.name: Backlog() for pool in pools}
        self._open: dict[str, set[Digest]] = {pool.name: set() for pool in pools}
        for worker in snapshot.workers:
            self._found.setdefault(worker.shape.pool, Backlog())
            self._open.setdefault(worker.shape.pool, set()).update(worker.lanes)
        self._rooms = {pool.name: _Rooms(pool) for pool in pools}
        self._homes: dict[Digest, _Empty] = {}

    def found(self) -> dict[str, Backlog]:
        """Every pool's backlog."""
        self._hold_open()
        self._count_running()
        self._count_ready()
        return self._found

    def _hold_open(self) -> None:
        """Gives every signature in demand a pool that holds its lane open, the largest first."""
        by_size = sorted(
            self._warm.values(),
            key=lambda one: (-one.info.requirement.memory_mib, one.info.signature),
        )
        for one in by_size:
            able = self._able(one.info, one.work, one.info.capacity)
            home = self._choose(able, one.work, one.weights, one.info)
            if home is None:
                continue
            self._homes[one.info.signature] = home
            name = home.pool.name
            self._rooms[name].take(one.info.requirement.memory_mib)
            self._found[name] = replace(self._found[name], warm=self._rooms[name].workers)

    def _count_running(self) -> None:
        for worker in self._snapshot.workers:
            here = worker.shape.pool
            stays_s, busy = 0.0, False
            for lane in worker.lanes.values():
                if not lane.held:
                    continue
                busy = True
                home = self._homes.get(lane.signature)
                if home is None or home.pool.name == here or lane.remaining_s > WARM_S:
                    stays_s = max(stays_s, lane.remaining_s)
                else:
                    there = self._found[home.pool.name]
                    more_s = home.share_s(self._warm[lane.signature].work) * lane.held
                    self._found[home.pool.name] = replace(there, ready_s=there.ready_s + more_s)
            known = self._found[here]
            self._found[here] = replace(
                known, running_s=known.running_s + stays_s, busy=known.busy + busy
            )

    def _count_ready(self) -> None:
        groups = [group for group in groups_of(self._snapshot) if not group.replica_of]
        ready = Counter[Digest]()
        for group in groups:
            ready[group.info.signature] += group.count
        opened = {signature for worker in self._snapshot.workers for signature in worker.lanes}
        able: dict[Digest, list[_Empty]] = {}
        for group in groups:
            signature = group.info.signature
            if signature not in able:
                able[signature] = self._able(group.info, group.work, ready[signature])
            chosen = self._choose(able[signature], group.work, group.weights, group.info)
            if chosen is not None:
                load_s = 0.0 if signature in opened else chosen.load_s
                opened.add(signature)
                name = chosen.pool.name
                self._found[name] = _with_group(
                    self._found[name], self._snapshot, group, chosen, load_s
                )

    def _able(self, info: SignatureInfo, work: Work, ready: int) -> list["_Empty"]:
        """The pools whose workers can run a signature's actions, of which so many are ready."""
        found = []
        key, size = CostKey.of(info), work.component_bytes
        needed = sum(n for _, n in info.components)
        one = self._warm.get(info.signature)
        for pool in self._pools:
            if unmet(info.requirement, pool.shape) is not None:
                continue
            kind = pool.shape.device_class
            capacity = float(min(lane_capacity(info, None, kind), ready))
            near = sum(n for digest, n in info.components if digest in pool.near)
            load_s = self._model.load_s(key, kind, size) + self._model.fetch_s(needed - near)
            rate = self._model.rate(key, kind, size, capacity)
            paid_s = load_s / float(lane_capacity(info, None, kind))
            total = max(1, pool.shape.device_memory_mib * pool.shape.devices)
            gap_s = one.gap_s if one else FIRST_GAP_S
            held_s = gap_s * min(1.0, info.requirement.memory_mib / total)
            open_ = info.signature in self._open[pool.name]
            cold_s = load_s * min(1.0, gap_s / WARM_S) if open_ else load_s
            alone = self._model.rate(key, kind, size)
            found.append(_Empty(pool, rate, alone, load_s, cold_s, paid_s, needed, near, held_s))
        return found

    def _choose(
        self, able: Sequence["_Empty"], work: Work, weights: Weights, info: SignatureInfo
    ) -> "_Empty | None":
        """The pool whose empty worker has the best utility; the first of equals.

        A pool that cannot grow any further and has its fill of work or of lanes is passed over
        while another is left: what it cannot take in time would be seen by nobody else.
        """
        if not able:
            return None
        if len(able) == 1:
            return able[0]
        utilities = Prospects([empty.prospect(work) for empty in able]).utilities(weights)
        open_ = [i for i, e in enumerate(able) if self._takes_more(e.pool, info)]
        best = max(open_ or range(len(able)), key=lambda i: (utilities[i], -i))
        return able[best]

    def _takes_more(self, pool: PoolView, info: SignatureInfo) -> bool:
        home = self._homes.get(info.signature)
        fits = home is not None or self._rooms[pool.name].has_room(info.requirement.memory_mib)
        return fits and self._found[pool.name].seconds < pool.most_s


class _Rooms:
    """The memory of a pool's workers, filled with lanes: first fit."""

    def __init__(self, pool: PoolView) -> None:
        self._most = max(1, pool.maximum)
        self._size = max(1, pool.shape.device_memory_mib * pool.shape.devices)
        self._free: list[int] = []

    @property
    def workers(self) -> int:
        """Workers that the lanes need."""
        return len(self._free)

    def has_room(self, mib: int) -> bool:
        """Whether one more lane finds a place."""
        return len(self._free) < self._most or any(free >= mib for free in self._free)

    def take(self, mib: int) -> None:
        """Gives a lane its place, in a worker more where it must be, while there may be one."""
        for n, free in enumerate(self._free):
            if free >= mib:
                self._free[n] -= mib
                return
        if len(self._free) < self._most:
            self._free.append(max(0, self._size - mib))


def _with_disks(pool: PoolView, workers: Sequence[WorkerView]) -> PoolView:
    """A pool's next worker is like those that it has: they brought what they hold near."""
    held = {
        digest for worker in workers if worker.shape.pool == pool.name for digest in worker.near
    }
    return replace(pool, near=pool.near | held) if held else pool


@dataclass(frozen=True, slots=True)
class _Empty:
    """An empty worker of a pool as all actions of a signature see it: a full lane to be loaded."""

    pool: PoolView
    rate: Rate
    alone: Rate
    load_s: float
    cold_s: float
    paid_load_s: float
    needed: int
    near: int
    held_s: float

    def share_s(self, work: Work) -> float:
        """Worker-seconds that an action of a size takes: its share of a full lane."""
        return self.rate.seconds(work) * self.rate.share

    def prospect(self, work: Work) -> Prospect:
        """What an action of a size would get."""
        paid_s = max(self.share_s(work) + self.paid_load_s, self.held_s)
        return Prospect(
            start_s=self.cold_s,
            wait_s=self.cold_s,
            first_tier=RUN,
            run_s=self.alone.seconds(work),
            nanousd=round(self.pool.shape.price_nanousd_per_hour * paid_s / NANO_HOUR_S),
            near_bytes=NEARNESS[Tier.DISK] * self.near,
            needed_bytes=self.needed,
            lane=False,
            locality=share_near(NEARNESS[Tier.DISK] * self.near, self.needed),
        )


def _with_group(
    known: Backlog, snapshot: Snapshot, group: Group, chosen: _Empty, load_s: float
) -> Backlog:
    """Adds a group to a pool's backlog, and the opening of its lane where none is open."""
    return replace(
        known,
        ready_s=known.ready_s + chosen.share_s(group.work) * group.count,
        load_s=known.load_s + load_s,
        actions=known.actions + group.count,
        pressed=max(known.pressed, _pressed(snapshot, group, chosen)),
    )


def _pressed(snapshot: Snapshot, group: Group, chosen: _Empty) -> int:
    """Workers needed so that the group's actions end by their deadlines, tightest first."""
    deadlines = sorted(action.deadline_s for action in group.ready if action.deadline_s != inf)
    needed, share_s = 0, chosen.share_s(group.work)
    for number, deadline_s in enumerate(deadlines, start=1):
        left_s = deadline_s - snapshot.now_s - chosen.load_s
        if left_s > 0.0:
            needed = max(needed, ceil(number * share_s / left_s))
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
        self.needed = 0

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
        wanted = max(wanted, backlog.pressed, backlog.warm, 1 if backlog.actions else 0)
        wanted = max(pool.minimum, min(pool.maximum, wanted))
        self._asked = [(t, n) for t, n in self._asked if now_s - t < self.calm_s and n > wanted]
        self._asked.append((now_s, wanted))
        self.needed = max(wanted, min(current, max(n for _, n in self._asked)))
        return max(self.needed, min(pool.maximum, backlog.busy, current))


def pool_views(workers: Sequence[WorkerView], maximum: Mapping[str, int]) -> list[PoolView]:
    """Pools as their connected workers show them; for fleets that declare none (the laptop)."""
    shapes: dict[str, WorkerShape] = {}
    for worker in workers:
        shapes.setdefault(worker.shape.pool, worker.shape)
    return [PoolView(n, shape, maximum=maximum.get(n, 1)) for n, shape in sorted(shapes.items())]
