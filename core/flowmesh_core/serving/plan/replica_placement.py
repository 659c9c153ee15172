"""Plans where the replicas of services are. Pure: one plan a round, from what is there now.

What runs stays where it is. What is missing goes to the worker that can load it soonest and
cheapest, at most one replica of a component a worker; where no worker has the memory, a pool that
could have one grows (``Backlog.serving``). A replica never takes memory from attempts that run.

The least numbers come first, older services before newer ones. Replicas beyond them go, one at a
time, to the component whose capacity is the smallest part of its demand: a greedy search for the
plan whose smallest part is greatest, then the second smallest (leximin).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.fleet.snapshot import SignatureInfo, WorkerView
from flowmesh_core.placement.constraints import unmet_in_pool, unmet_remedy
from flowmesh_core.protocol.messages import PrewarmSpec, ServingReplica
from flowmesh_core.serving.plan.code_tenants import OTHER_TENANT, CodeTenants
from flowmesh_core.serving.plan.pool_growth import PoolGrowth
from flowmesh_core.serving.plan.replica_reason import ReplicaReason, ReplicaVerdict
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
        spare: of the wanted ones, those beyond the least number.
        rate_per_s: the demand; ``capacity_per_s`` what a replica serves of it, by device class.
        too_slow: device class → why a replica there could not keep the latency target.
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
    spare: int = 0
    rate_per_s: float = 0.0
    capacity_per_s: Mapping[str, float] = field(default_factory=dict)
    too_slow: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The service and the component."""
        return self.service, self.component

    @property
    def namespace(self) -> str:
        """The service's namespace."""
        return self.service.partition("/")[0]

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
        reported: names of workers whose replicas are known by their reports alone; what this leader
            has sent to a worker goes before them.
        pinned: worker → signatures whose memory is reserved there.
        pools: those that can grow.
        reserved: names of all reserved pools.
    """

    workers: Sequence[WorkerView]
    leaving: Collection[str] = frozenset()
    held: Mapping[str, Collection[str]] = field(default_factory=dict)
    reported: Collection[str] = frozenset()
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
        placements: why each replica is where it is, or missing.
    """

    workers: dict[str, tuple[ServingReplica, ...]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    placements: tuple[ReplicaReason, ...] = ()


def plan_replicas(demands: Sequence[ComponentDemand], fleet: FleetView) -> ServingPlan:
    """Returns where the replicas of all services should be.

    Args:
        demands: in order of age: where memory is short, older services come first.
        fleet: what there is.
    """
    planner = _Planner(fleet)
    missing = [(demand, planner.keep(demand)) for demand in demands]
    for demand, count in missing:
        planner.place(demand, max(0, count - demand.spare))
    planner.place_by_need([(demand, min(count, demand.spare)) for demand, count in missing])
    return planner.plan()


class _Planner:
    """A plan while it is made."""

    def __init__(self, fleet: FleetView) -> None:
        self._fleet = fleet
        self._able = {w.name: w for w in fleet.workers if w.name not in fleet.leaving}
        self._free = {w.name: w.free_memory_mib for w in fleet.workers}
        self._pinned = {n: set(fleet.pinned.get(n, ())) for n in self._free}
        self._tenants = CodeTenants(fleet.workers)
        self._found: dict[str, list[ServingReplica]] = {}
        self._growth = PoolGrowth(fleet.pools, fleet.workers, fleet.reserved)
        self._reasons: dict[tuple[str, str], str] = {}
        self._placements: list[ReplicaReason] = []
        self._left: dict[tuple[str, str], list[str]] = {}
        self._capacity_per_s: dict[tuple[str, str], float] = {}
        self._short: list[ComponentDemand] = []

    def keep(self, demand: ComponentDemand) -> int:
        """Keeps what runs, up to the number that is wanted; returns how many are missing."""
        missing, known = demand.wanted, set[str]()
        for name, replica_ids in self._by_preference(demand):
            for replica_id in replica_ids:
                if not replica_id.startswith(demand.prefix) or replica_id in known:
                    continue
                known.add(replica_id)
                if missing and name in self._able and self._fits(demand, name):
                    self._give(demand, name, replica_id)
                    self._explain(demand, ReplicaVerdict.STAYS, "it runs there", name, replica_id)
                    missing -= 1
                elif missing:
                    self._left.setdefault(demand.key, []).append(f"{replica_id} of {name}")
        return missing

    def _by_preference(self, demand: ComponentDemand) -> list[tuple[str, Collection[str]]]:
        """Returns what workers have: loaded replicas first, then the cheapest workers."""

        def order(item: tuple[str, Collection[str]]) -> tuple[bool, bool, int, str]:
            name = item[0]
            is_claim, worker = name in self._fleet.reported, self._able.get(name)
            if worker is None:
                return is_claim, True, 0, name
            instance = worker.instances.get(demand.info.signature)
            loads = instance is None or instance.load_remaining_s > 0
            return is_claim, loads, worker.shape.price_nanousd_per_hour, name

        return sorted(self._fleet.held.items(), key=order)

    def place(self, demand: ComponentDemand, count: int) -> None:
        """Places missing replicas on workers; else has a pool grow, or notes why it cannot."""
        for _ in range(count):
            self._place_one(demand)

    def place_by_need(self, missing: Sequence[tuple[ComponentDemand, int]]) -> None:
        """Places replicas one at a time, each for the component that is shortest of capacity."""
        counts = {demand.key: count for demand, count in missing}
        order = {demand.key: n for n, (demand, _) in enumerate(missing)}
        short = [demand for demand, count in missing if count]
        while short:
            self._short = short
            demand = min(short, key=lambda d: (*self._need(d), order[d.key]))
            if self._place_one(demand):
                counts[demand.key] -= 1
            else:  # no more of it fit, and each that is missing may have a worker come
                self.place(demand, counts[demand.key] - 1)
                counts[demand.key] = 0
            short = [d for d in short if counts[d.key]]
        self._short = []

    def _need(self, demand: ComponentDemand) -> tuple[float, float]:
        """Returns the part of its demand that a component serves, and less what one more adds."""
        if not demand.rate_per_s:
            return float("inf"), 0.0
        served = self._capacity_per_s.get(demand.key, 0.0)
        more = max(demand.capacity_per_s.values(), default=0.0)
        return served / demand.rate_per_s, -more / demand.rate_per_s

    def _place_one(self, demand: ComponentDemand) -> bool:
        found = self._best_worker(demand)
        if found is None:
            text = self._growth.add(demand) or self._reason(demand)
            self._reasons[demand.key] = text
            self._explain(demand, ReplicaVerdict.MISSING, text)
            return False
        name, text = found
        replica_id = demand.prefix + self._free_number(demand)
        self._free[name] -= self._needs_mib(demand, name)
        self._pinned[name].add(demand.info.signature)
        self._give(demand, name, replica_id)
        verdict, left = ReplicaVerdict.PLACED, self._left.get(demand.key)
        if left:
            verdict, text = ReplicaVerdict.MOVED, f"{text}; in place of {left.pop(0)}"
        self._explain(demand, verdict, text, name, replica_id)
        return True

    def _explain(
        self,
        demand: ComponentDemand,
        verdict: ReplicaVerdict,
        text: str,
        worker: str = "",
        replica_id: str = "",
    ) -> None:
        reason = ReplicaReason(*demand.key, verdict, text, worker, replica_id)
        self._placements.append(reason)

    def plan(self) -> ServingPlan:
        """Returns the plan."""
        workers = {name: tuple(found) for name, found in self._found.items()}
        floors = self._growth.floors(self._able.values(), self._found)
        return ServingPlan(workers, floors, self._reasons, tuple(self._placements))

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
        self._tenants.bind(demand, name)
        served = demand.capacity_per_s.get(self._able[name].shape.device_class, 0.0)
        key = demand.key
        self._capacity_per_s[key] = self._capacity_per_s.get(key, 0.0) + served

    def _free_number(self, demand: ComponentDemand) -> str:
        """Returns the least number that no replica of the component has, nor had on a worker."""
        known = {replica_id for ids in self._fleet.held.values() for replica_id in ids}
        known |= {r.replica_id for found in self._found.values() for r in found}
        return next(str(n) for n in range(len(known) + 1) if f"{demand.prefix}{n}" not in known)

    def _fits(self, demand: ComponentDemand, name: str) -> bool:
        """Whether the worker may hold the component, were there enough memory."""
        worker, fleet = self._able[name], self._fleet
        if worker.shape.device_class in demand.too_slow or not self._tenants.admits(demand, name):
            return False
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

    def _best_worker(self, demand: ComponentDemand) -> tuple[str, str] | None:
        """Returns the worker that gets a replica, and why; None where none can."""
        ranked = []
        for name, worker in self._able.items():
            needs_mib = self._needs_mib(demand, name)
            if worker.draining or not self._fits(demand, name) or needs_mib > self._free[name]:
                continue
            far = sum(n for digest, n in demand.info.components if digest not in worker.local)
            is_open = demand.info.signature in worker.instances
            price = worker.shape.price_nanousd_per_hour
            ranked.append(
                (
                    needs_mib > 0,
                    not is_open,
                    far,
                    price,
                    self._others(demand, name),
                    -self._free[name],
                    name,
                )
            )
        if not ranked:
            return None
        loads, is_closed, far, *_, name = min(ranked)
        if not loads or not is_closed:
            return name, "its engine is open there"
        near = "has its files and " if demand.info.components and not far else ""
        return name, f"{near}is the cheapest of {len(ranked)} that can load it"

    def _others(self, demand: ComponentDemand, name: str) -> int:
        """Returns how many other components that are short could use the worker."""
        return sum(
            other.key != demand.key
            and self._fits(other, name)
            and self._needs_mib(other, name) <= self._free[name]
            for other in self._short
        )

    def _reason(self, demand: ComponentDemand) -> str:
        shapes = [w.shape for w in self._able.values()]
        if not shapes:
            return "no worker is connected"
        if remedy := unmet_remedy(demand.info.requirement, shapes):
            return remedy
        if not any(w.serves for w in self._able.values()):
            return NO_HUB
        if not any(self._tenants.admits(demand, w.name) for w in self._able.values() if w.serves):
            return OTHER_TENANT
        if all(shape.device_class in demand.too_slow for shape in shapes):
            return next(iter(demand.too_slow.values()))
        return (
            f"no worker has {demand.memory_mib} MiB free for it; attempts and other replicas have "
            "the rest"
        )
