"""Frozen copy of how pools are compared: by what one more idle worker of each would be."""

from collections.abc import Sequence
from dataclasses import dataclass

from flowmesh_core.costmodel import Rate
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_sim.policies.signals.signal import ScaledPool

HOUR_S = 3600.0
LEAST_FINISH_S = 1e-6
DISK_NEARNESS = 0.5
SUNK_COST_SHARE = 0.1


def memory_mib(pool: ScaledPool) -> int:
    """Returns the device memory of a worker."""
    return max(1, pool.shape.device_memory_mib * pool.shape.devices)


def most_s(pool: ScaledPool) -> float:
    """Returns the work that a pool may have before it when it cannot grow any more."""
    return pool.maximum * max(pool.target_s, pool.start_s)


class FrozenMemoryPacking:
    """First-fit packing of engine instances into the memory of a pool's workers."""

    def __init__(self, pool: ScaledPool) -> None:
        self._most = pool.maximum
        self._size = memory_mib(pool)
        self._free: list[int] = []

    @property
    def workers(self) -> int:
        """Workers that the instances need."""
        return len(self._free)

    def fits(self, mib: int) -> bool:
        """Whether one more instance fits."""
        return len(self._free) < self._most or any(free >= mib for free in self._free)

    def take(self, mib: int) -> None:
        """Packs an instance, into a further worker if it must and there may be one."""
        for n, free in enumerate(self._free):
            if free >= mib:
                self._free[n] -= mib
                return
        if len(self._free) < self._most:
            self._free.append(max(0, self._size - mib))


@dataclass(frozen=True, slots=True)
class WorkerEstimate:
    """What an action would get from a worker.

    Attributes:
        sunk: whether the worker is paid for in any case.
    """

    finish_s: float
    nanousd: int
    locality: float
    sunk: bool


@dataclass(frozen=True, slots=True)
class FrozenTemplateWorker:
    """An idle worker of a pool, as the actions of a signature see it.

    Attributes:
        alone: rate of an action by itself; ``full`` beside as many as are ready.
        load_s: seconds to load an instance; ``expected_load_s`` those that an action waits.
        paid_load_s: an action's share of loading it.
        open_s: worker-seconds for which the instance is open until the next action comes.
        local_bytes: of ``needed_bytes``, those that are on its disk.
    """

    pool: ScaledPool
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

    def at_home(self, work: WorkSize) -> WorkerEstimate:
        """Returns what an action gets on average where its instance stays open."""
        paid_s = max(self.share_s(work), self.open_s)
        return self._worker_estimate(self.alone.seconds(work), paid_s, 1.0)

    def estimate(self, work: WorkSize) -> WorkerEstimate:
        """Returns what an action would get on this worker."""
        paid_s = max(self.share_s(work) + self.paid_load_s, self.open_s)
        near = DISK_NEARNESS * self.local_bytes
        locality = near / self.needed_bytes if self.needed_bytes else 1.0
        return self._worker_estimate(
            self.expected_load_s + self.alone.seconds(work), paid_s, locality
        )

    def _worker_estimate(self, finish_s: float, paid_s: float, locality: float) -> WorkerEstimate:
        nanousd = round(self.pool.shape.price_nanousd_per_hour * paid_s / HOUR_S)
        sunk = self.pool.minimum >= self.pool.maximum
        return WorkerEstimate(max(LEAST_FINISH_S, finish_s), nanousd, locality, sunk)


def utilities(estimates: Sequence[WorkerEstimate], weights: UtilityWeights) -> list[float]:
    """Returns alpha * throughput - beta * cost + gamma * locality of each."""
    earliest_s = min(p.finish_s for p in estimates)
    dearest = max(1, *(p.nanousd for p in estimates))
    sunk_share = 1.0 if weights.beta > weights.alpha else SUNK_COST_SHARE
    found = []
    for p in estimates:
        throughput = earliest_s / p.finish_s if p.finish_s > earliest_s else 1.0
        cost = p.nanousd / dearest
        cost = cost * sunk_share if p.sunk else cost
        found.append(weights.alpha * throughput - weights.beta * cost + weights.gamma * p.locality)
    return found
