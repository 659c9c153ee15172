"""Which pools grow for replicas that no worker has room for; called by ``replica_placement``."""

from collections.abc import Collection, Iterable, Sequence

from flowmesh_core.autoscaling.pool_model import MemoryPacking, PoolView
from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.placement.constraints import unmet_in_pool
from flowmesh_core.serving.plan.component_demand import ReplicaGroup


class PoolGrowth:
    """The workers that pools need for one plan."""

    def __init__(
        self,
        pools: Sequence[PoolView],
        workers: Sequence[WorkerView],
        reserved: Collection[str],
    ) -> None:
        """Needs none yet.

        Args:
            pools: those that can grow.
            workers: connected ones.
            reserved: names of all reserved pools.
        """
        self._pools = pools
        self._workers = workers
        self._reserved = reserved
        self._growing: dict[str, MemoryPacking] = {}

    def add(self, group: ReplicaGroup) -> str:
        """Counts a worker more for the cheapest pool that could load it; returns which, or ""."""
        memory_mib = group.memory_mib()
        for pool in sorted(self._pools, key=lambda p: p.shape.price_nanousd_per_hour):
            if not self._could_hold(group, pool):
                continue
            present = [w for w in self._workers if w.shape.pool == pool.name]
            if present and not any(w.serves for w in present):
                continue  # its workers have no hub, and another would not have one either
            packing = self._growing.get(pool.name) or MemoryPacking(pool)
            grows = len(present) + packing.workers < pool.most
            if (packing.workers and packing.fits(memory_mib)) or grows:
                packing.take(memory_mib)
                self._growing[pool.name] = packing
                return f"waits for a worker of pool {pool.name}"
        return ""

    def _could_hold(self, group: ReplicaGroup, pool: PoolView) -> bool:
        shape = pool.shape
        return group.memory_mib() <= pool.memory_mib and all(
            unmet_in_pool(d.info.requirement, shape, self._reserved, d.reserved_pools) is None
            and shape.device_class not in d.too_slow
            for d in group.demands
        )

    def floors(self, able: Iterable[WorkerView], busy: Collection[str]) -> dict[str, int]:
        """Returns how many workers each pool needs, where it needs any.

        Args:
            able: workers that may have replicas.
            busy: names of those that have some.
        """
        floors = {p.name: 0 for p in self._pools}
        present = dict.fromkeys(floors, 0)
        for worker in able:
            pool = worker.shape.pool
            if pool in floors:
                floors[pool] += worker.name in busy
                present[pool] += 1
        for pool, packing in self._growing.items():
            floors[pool] = present[pool] + packing.workers
        return {p: n for p, n in floors.items() if n}
