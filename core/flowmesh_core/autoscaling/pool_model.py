"""Pools as the capacity signal sees them, each with what one more of its workers would offer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from flowmesh_core.autoscaling.settings import DISPLACED_SHARE, SCALE_DOWN_S
from flowmesh_core.costmodel import Rate
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import Tier, WorkerView
from flowmesh_core.placement.capacity import RUN
from flowmesh_core.placement.equivalence import NANO_HOUR_S
from flowmesh_core.placement.interruptions import expected_loss_s
from flowmesh_core.placement.settings import FAIR_SHARE_PRICE_NANOUSD_PER_HOUR
from flowmesh_core.placement.utility import NEARNESS, Estimate, share_near
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool that can grow.

    Attributes:
        shape: the shape of each worker (its name does not matter).
        start_s: predicted seconds from requesting a worker until it connects.
        target_s: seconds of work that one worker may have queued.
        stabilization_s: seconds for which fewer workers must have been enough before one is
            removed.
        local: components that a new worker would find on its disk, from a volume or because it is
            a paused machine.
        supply: how many workers the pool can get, if it has requested more that do not arrive
            (``pool_supply``); None if no limit is known.
        declaration: the limits that the pool's object declares for its workers; None without an
            object.
        keep_most_s: the longest time after their last use for which engines keep a worker.
    """

    name: str
    shape: WorkerShape
    minimum: int = 0
    maximum: int = 1
    start_s: float = 0.0
    target_s: float = 60.0
    stabilization_s: float = SCALE_DOWN_S
    local: frozenset[Digest] = frozenset()
    supply: int | None = None
    declaration: PoolDeclaration | None = None
    keep_most_s: float = inf

    @property
    def memory_mib(self) -> int:
        """Device memory of a worker, over all its devices."""
        return max(1, self.shape.device_memory_mib * self.shape.devices)

    @property
    def price_nanousd_per_hour(self) -> int:
        """The price of a worker that decisions use: a dollar an hour if the pool has none."""
        return self.shape.price_nanousd_per_hour or FAIR_SHARE_PRICE_NANOUSD_PER_HOUR

    @property
    def idle_s(self) -> float:
        """Seconds that a worker stays idle before it is removed: at least as long as it starts."""
        return max(self.stabilization_s, self.start_s)

    @property
    def sunk(self) -> bool:
        """Whether all its workers are paid for in any case."""
        return self.minimum >= self.maximum

    @property
    def most(self) -> int:
        """How many workers the pool can have, as far as is known."""
        return self.maximum if self.supply is None else min(self.maximum, self.supply)


def pool_views(workers: Sequence[WorkerView], maximum: Mapping[str, int]) -> list[PoolView]:
    """Returns the pools of the connected workers, for fleets that declare no pools."""
    shapes: dict[str, WorkerShape] = {}
    for worker in workers:
        shapes.setdefault(worker.shape.pool, worker.shape)
    return [PoolView(n, shape, maximum=maximum.get(n, 1)) for n, shape in sorted(shapes.items())]


class MemoryPacking:
    """First-fit packing of engine instances into the memory of a pool's workers.

    Attributes:
        worth: for each worker, the value of keeping its instances open, in nano-dollars an hour.
            From the second worker on they are worth more: without that worker, they would displace
            others when they return.
        needed: for each worker, whether open steps need one of its instances.
    """

    def __init__(self, pool: PoolView) -> None:
        self._most = pool.most
        self._size = pool.memory_mib
        self._price_nanousd_per_hour = pool.price_nanousd_per_hour
        self._free: list[int] = []
        self.worth: list[float] = []
        self.needed: list[bool] = []

    @property
    def workers(self) -> int:
        """Workers that the instances need."""
        return len(self._free)

    @property
    def retained(self) -> int:
        """How many of these workers are worth their price."""
        return sum(worth >= self._price_nanousd_per_hour for worth in self.worth)

    def fits(self, mib: int) -> bool:
        """Whether one more instance fits."""
        return len(self._free) < self._most or any(free >= mib for free in self._free)

    def take(self, mib: int, worth: float = 0.0, *, needed: bool = False) -> None:
        """Packs an instance, on one more worker if it fits on none and the pool can have one."""
        found = next((n for n, free in enumerate(self._free) if free >= mib), len(self._free))
        if found == self._most:
            return
        if found == len(self._free):
            self._free.append(self._size)
            self.worth.append(0.0)
            self.needed.append(False)
        self._free[found] = max(0, self._free[found] - mib)
        self.worth[found] += worth * (1.0 + DISPLACED_SHARE) if found else worth
        self.needed[found] |= needed


@dataclass(frozen=True, slots=True)
class TemplateWorker:
    """An idle worker of a pool, as the actions of a signature see it.

    Attributes:
        alone: the rate of an action that runs by itself.
        full: the rate of an action beside all that are ready, up to an instance's capacity.
        load_s: seconds to fetch the components and load an instance.
        expected_load_s: seconds that an action is expected to wait for the load; 0 if the pool has
            such an instance.
        paid_load_s: an action's share of the load.
        open_s: worker-seconds for which the instance occupies its share of the memory until the
            next action arrives. That action pays for them.
        needed_bytes: bytes of all components.
        local_bytes: bytes of the components that are on the worker's disk.
    """

    pool: PoolView
    alone: Rate
    full: Rate
    load_s: float
    expected_load_s: float
    paid_load_s: float
    open_s: float
    needed_bytes: int
    local_bytes: int

    def share_s(self, work: WorkSize) -> float:
        """Returns the worker-seconds that an action takes: its share of a full instance."""
        return self.full.seconds(work) * self.full.share

    def with_instance(self, work: WorkSize) -> Estimate:
        """Returns an action's average estimate on a worker that keeps the instance open."""
        paid_s = max(self.share_s(work), self.open_s)
        run_s = self.alone.seconds(work)
        loss_s = self._loss_s(run_s)
        return Estimate(
            start_s=0.0,
            wait_s=0.0,
            first_tier=RUN,
            run_s=run_s,
            nanousd=round(self.pool.shape.price_nanousd_per_hour * paid_s / NANO_HOUR_S),
            near_bytes=0.0,
            needed_bytes=0,
            has_instance=True,
            locality=1.0,
            sunk=self.pool.sunk,
            loss_s=loss_s,
            loss_nanousd=self._loss_nanousd(loss_s),
        )

    def estimate(self, work: WorkSize) -> Estimate:
        """Returns an action's estimate on this idle worker."""
        paid_s = max(self.share_s(work) + self.paid_load_s, self.open_s)
        near = NEARNESS[Tier.DISK] * self.local_bytes
        run_s = self.alone.seconds(work)
        loss_s = self._loss_s(self.expected_load_s + run_s)
        return Estimate(
            start_s=self.expected_load_s,
            wait_s=self.expected_load_s,
            first_tier=RUN,
            run_s=run_s,
            nanousd=round(self.pool.shape.price_nanousd_per_hour * paid_s / NANO_HOUR_S),
            near_bytes=near,
            needed_bytes=self.needed_bytes,
            has_instance=False,
            locality=share_near(near, self.needed_bytes),
            sunk=self.pool.sunk,
            loss_s=loss_s,
            loss_nanousd=self._loss_nanousd(loss_s),
        )

    def _loss_s(self, busy_s: float) -> float:
        return expected_loss_s(busy_s, self.load_s) if self.pool.shape.spot else 0.0

    def _loss_nanousd(self, loss_s: float) -> int:
        price = self.pool.shape.price_nanousd_per_hour
        return round(price * loss_s * self.full.share / NANO_HOUR_S)
