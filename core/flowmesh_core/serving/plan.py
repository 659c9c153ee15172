"""Plans where the replicas of services are. Pure: one plan a round, from what is there now.

What runs stays where it is. What is missing goes to the worker that can load it soonest and
cheapest, at most one replica of a component a worker; where no worker has the memory, a pool that
could have one grows (``Backlog.serving``). A replica never takes memory from attempts that run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_core.autoscaling.pool_model import MemoryPacking, PoolView
from flowmesh_core.fleet.snapshot import SignatureInfo, WorkerView
from flowmesh_core.placement.constraints import unmet_in_pool, unmet_remedy
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica
from flowmesh_core.units import Digest

NO_HUB = "no connected worker can hold replicas: none has a hub"


@dataclass(frozen=True, slots=True)
class ComponentDemand:
    """A component of a service's release, and how many replicas of it there should be.

    Attributes:
        service: ``namespace/name``.
        release: the name of its release.
        info: what a worker must be to load it; ``opening`` what it loads.
        wanted: number of replicas.
        calls_max: calls that one takes at once; 0 for what the engine can.
        salts: by namespace of a caller, what separates its prefix cache.
        reserved_pools: reserved pools that take the service's namespace.
    """

    service: str
    component: str
    release: str
    info: SignatureInfo
    opening: PrewarmSpec
    wanted: int
    calls_max: int = 0
    salts: Mapping[str, str] = field(default_factory=dict)
    reserved_pools: Collection[str] = frozenset()

    @property
    def prefix(self) -> str:
        """The beginning of the ids of its replicas."""
        return f"{self.service}/{self.component}/{self.release}/"

    @property
    def memory_mib(self) -> int:
        """The memory of one replica on its worker."""
        return self.opening.memory_mib


@dataclass(frozen=True, slots=True)
class FleetView:
    """What a plan is made from beside the services.

    Attributes:
        workers: connected ones.
        leaving: names of workers that leave; their replicas go elsewhere.
        held: worker → ids of the replicas that the last plan gave it; for a new leader, of those
            that it reports.
        pinned: worker → signatures whose memory is reserved there.
        pools: those that can grow.
        reserved: names of all reserved pools.
    """

    workers: Sequence[WorkerView]
    leaving: Collection[str] = frozenset()
    held: Mapping[str, Collection[str]] = field(default_factory=dict)
    pinned: Mapping[str, Collection[Digest]] = field(default_factory=dict)
    pools: Sequence[PoolView] = ()
    reserved: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Where replicas are.

    Attributes:
        workers: worker → its replicas, in the order of loading.
        floors: pool → workers that it needs for replicas.
        reasons: (service, component) → why replicas are missing; no entry where none is.
    """

    workers: dict[str, tuple[ServingReplica, ...]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)


def plan_replicas(demands: Sequence[ComponentDemand], fleet: FleetView) -> ServingPlan:
    """Returns where the replicas of all services should be.

    Args:
        demands: in order of age: where memory is short, older services come first.
        fleet: what there is.
    """
    planner = _Planner(fleet)
    missing = [(demand, planner.keep(demand)) for demand in demands]
    for demand, count in missing:
        planner.place(demand, count)
    return planner.plan()


class _Planner:
    """A plan while it is made."""

    def __init__(self, fleet: FleetView) -> None:
        self._fleet = fleet
        self._able = {w.name: w for w in fleet.workers if w.name not in fleet.leaving}
        self._free = {w.name: w.free_memory_mib for w in fleet.workers}
        self._pinned = {n: set(fleet.pinned.get(n, ())) for n in self._free}
        self._found: dict[str, list[ServingReplica]] = {}
        self._growing: dict[str, MemoryPacking] = {}
        self._reasons: dict[tuple[str, str], str] = {}

    def keep(self, demand: ComponentDemand) -> int:
        """Keeps what runs, up to the number that is wanted; returns how many are missing."""
        missing = demand.wanted
        for name, replica_ids in sorted(self._fleet.held.items()):
            for replica_id in replica_ids:
                belongs = replica_id.startswith(demand.prefix)
                if belongs and missing and name in self._able and self._fits(demand, name):
                    self._give(demand, name, replica_id)
                    missing -= 1
        return missing

    def place(self, demand: ComponentDemand, count: int) -> None:
        """Places missing replicas on workers; else has a pool grow, or notes why it cannot."""
        for _ in range(count):
            name = self._best_worker(demand)
            if name is not None:
                self._free[name] -= self._needs_mib(demand, name)
                self._pinned[name].add(demand.info.signature)
                self._give(demand, name, demand.prefix + self._free_number(demand))
                continue
            key = (demand.service, demand.component)
            self._reasons[key] = self._grow(demand) or self._reason(demand)

    def plan(self) -> ServingPlan:
        """Returns the plan."""
        floors = {p.name: 0 for p in self._fleet.pools}
        present = dict.fromkeys(floors, 0)
        for worker in self._able.values():
            pool = worker.shape.pool
            if pool in floors:
                floors[pool] += worker.name in self._found
                present[pool] += 1
        for pool, packing in self._growing.items():
            floors[pool] = present[pool] + packing.workers
        workers = {name: tuple(found) for name, found in self._found.items()}
        return ServingPlan(workers, {p: n for p, n in floors.items() if n}, self._reasons)

    def _give(self, demand: ComponentDemand, name: str, replica_id: str) -> None:
        replica = ServingReplica(
            replica_id,
            demand.service,
            demand.component,
            demand.release,
            demand.opening,
            demand.calls_max,
            dict(demand.salts),
        )
        self._found.setdefault(name, []).append(replica)

    def _free_number(self, demand: ComponentDemand) -> str:
        """Returns the least number that no replica of the component has, nor had on a worker."""
        known = {replica_id for ids in self._fleet.held.values() for replica_id in ids}
        known |= {r.replica_id for found in self._found.values() for r in found}
        return next(str(n) for n in range(len(known) + 1) if f"{demand.prefix}{n}" not in known)

    def _fits(self, demand: ComponentDemand, name: str) -> bool:
        """Whether the worker may hold the component, were there enough memory."""
        worker, fleet = self._able[name], self._fleet
        if not worker.serves or any(
            r.replica_id.startswith(demand.prefix) for r in self._found.get(name, ())
        ):
            return False
        unmet = unmet_in_pool(
            demand.info.requirement, worker.shape, fleet.reserved, demand.reserved_pools
        )
        return unmet is None

    def _needs_mib(self, demand: ComponentDemand, name: str) -> int:
        """Returns the memory that the replica adds: none where its instance is pinned already."""
        return 0 if demand.info.signature in self._pinned[name] else demand.memory_mib

    def _best_worker(self, demand: ComponentDemand) -> str | None:
        ranked = []
        for name, worker in self._able.items():
            needs_mib = self._needs_mib(demand, name)
            if worker.draining or not self._fits(demand, name) or needs_mib > self._free[name]:
                continue
            far = sum(n for digest, n in demand.info.components if digest not in worker.local)
            is_open = demand.info.signature in worker.instances
            price = worker.shape.price_nanousd_per_hour
            ranked.append((needs_mib > 0, not is_open, far, price, -self._free[name], name))
        return min(ranked)[-1] if ranked else None

    def _grow(self, demand: ComponentDemand) -> str:
        """Counts a worker more for the cheapest pool that could load it; returns which, or ""."""
        requirement, reserved = demand.info.requirement, self._fleet.reserved
        for pool in sorted(self._fleet.pools, key=lambda p: p.shape.price_nanousd_per_hour):
            if unmet_in_pool(requirement, pool.shape, reserved, demand.reserved_pools):
                continue
            present = [w for w in self._fleet.workers if w.shape.pool == pool.name]
            if present and not any(w.serves for w in present):
                continue  # its workers have no hub, and another would not have one either
            packing = self._growing.get(pool.name) or MemoryPacking(pool)
            grows = len(present) + packing.workers < pool.most
            if (packing.workers and packing.fits(demand.memory_mib)) or grows:
                packing.take(demand.memory_mib)
                self._growing[pool.name] = packing
                return f"waits for a worker of pool {pool.name}"
        return ""

    def _reason(self, demand: ComponentDemand) -> str:
        shapes = [w.shape for w in self._able.values()]
        if not shapes:
            return "no worker is connected"
        if remedy := unmet_remedy(demand.info.requirement, shapes):
            return remedy
        if not any(w.serves for w in self._able.values()):
            return NO_HUB
        return (
            f"no worker has {demand.memory_mib} MiB free for it; attempts and other replicas have "
            "the rest"
        )
