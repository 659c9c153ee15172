"""Plans where the replicas of services are. Pure: one plan a round, from what is there now.

What runs stays where it is. What is missing goes to the worker that can load it soonest and
cheapest, at most one replica of a component a worker; where no worker has the memory, a pool that
could have one grows (``Backlog.serving``). A replica never takes memory from attempts that run.

Components of one affinity group are placed as one: a worker gets a replica of each, or none.

The least numbers come first, older services before newer ones. Replicas beyond them go, one at a
time, to the component whose capacity is the smallest part of its demand: a greedy search for the
plan whose smallest part is greatest, then the second smallest (leximin).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.placement.constraints import unmet_in_pool
from flowmesh_core.protocol.messages import ServingReplica
from flowmesh_core.serving.plan.code_tenants import CodeTenants
from flowmesh_core.serving.plan.component_demand import (
    ComponentDemand,
    FleetView,
    ReplicaGroup,
    grouped,
)
from flowmesh_core.serving.plan.missing_reason import missing_reason
from flowmesh_core.serving.plan.pool_growth import PoolGrowth
from flowmesh_core.serving.plan.replica_reason import ReplicaReason, ReplicaVerdict


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
    missing = [(group, planner.keep(group)) for group in grouped(demands)]
    for group, count in missing:
        planner.place(group, max(0, count - group.spare))
    planner.place_by_need([(group, min(count, group.spare)) for group, count in missing])
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
        self._short: list[ReplicaGroup] = []

    def keep(self, group: ReplicaGroup) -> int:
        """Keeps what runs, up to the number that is wanted; returns how many are missing.

        Of several components a worker keeps all or none.
        """
        missing, known = group.wanted, set[str]()
        for name, held in self._by_preference(group):
            found = {d.key: self._unknown(held, d, known) for d in group.demands}
            known.update(replica_id for ids in found.values() for replica_id in ids)
            whole = all(found.values()) and name in self._able and self._fits(group, name)
            if missing and whole:
                for demand in group.demands:
                    replica_id = found[demand.key].pop(0)
                    self._give(demand, name, replica_id)
                    self._explain(demand, ReplicaVerdict.STAYS, "it runs there", name, replica_id)
                missing -= 1
            if missing:
                for key, ids in found.items():
                    self._left.setdefault(key, []).extend(f"{one} of {name}" for one in ids)
        return missing

    @staticmethod
    def _unknown(
        held: Collection[str], demand: ComponentDemand, known: Collection[str]
    ) -> list[str]:
        return [r for r in held if r.startswith(demand.prefix) and r not in known]

    def _by_preference(self, group: ReplicaGroup) -> list[tuple[str, Collection[str]]]:
        """Returns what workers have: loaded replicas first, then the cheapest workers."""

        def order(item: tuple[str, Collection[str]]) -> tuple[bool, bool, int, str]:
            name = item[0]
            is_claim, worker = name in self._fleet.reported, self._able.get(name)
            if worker is None:
                return is_claim, True, 0, name
            loads = not all(_is_loaded(worker, demand) for demand in group.demands)
            return is_claim, loads, worker.shape.price_nanousd_per_hour, name

        return sorted(self._fleet.held.items(), key=order)

    def place(self, group: ReplicaGroup, count: int) -> None:
        """Places missing replicas on workers; else has a pool grow, or notes why it cannot."""
        for _ in range(count):
            self._place_one(group)

    def place_by_need(self, missing: Sequence[tuple[ReplicaGroup, int]]) -> None:
        """Places replicas one at a time, each for the component that is shortest of capacity."""
        counts = {group.demands[0].key: count for group, count in missing}
        order = {group.demands[0].key: n for n, (group, _) in enumerate(missing)}
        short = [group for group, count in missing if count]
        while short:
            self._short = short
            group = min(short, key=lambda g: (*self._need(g), order[g.demands[0].key]))
            key = group.demands[0].key
            if self._place_one(group):
                counts[key] -= 1
            else:  # no more of it fit, and each that is missing may have a worker come
                self.place(group, counts[key] - 1)
                counts[key] = 0
            short = [g for g in short if counts[g.demands[0].key]]
        self._short = []

    def _need(self, group: ReplicaGroup) -> tuple[float, float]:
        """Returns the part of its demand that a component serves, and less what one more adds."""
        return min(map(self._need_of, group.demands))

    def _need_of(self, demand: ComponentDemand) -> tuple[float, float]:
        if not demand.rate_per_s:
            return float("inf"), 0.0
        served = self._capacity_per_s.get(demand.key, 0.0)
        more = max(demand.capacity_per_s.values(), default=0.0)
        return served / demand.rate_per_s, -more / demand.rate_per_s

    def _place_one(self, group: ReplicaGroup) -> bool:
        found = self._best_worker(group)
        if found is None:
            text = self._growth.add(group) or missing_reason(
                group, self._able.values(), self._tenants
            )
            for demand in group.demands:
                self._reasons[demand.key] = text
                self._explain(demand, ReplicaVerdict.MISSING, text)
            return False
        name, reason = found
        self._free[name] -= group.memory_mib(self._pinned[name])
        for demand in group.demands:
            replica_id = demand.prefix + self._free_number(demand)
            self._pinned[name].add(demand.info.signature)
            self._give(demand, name, replica_id)
            verdict, text, left = ReplicaVerdict.PLACED, reason, self._left.get(demand.key)
            if left:
                verdict, text = ReplicaVerdict.MOVED, f"{reason}; in place of {left.pop(0)}"
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

    def _fits(self, group: ReplicaGroup, name: str) -> bool:
        """Whether the worker may hold the components, were there enough memory."""
        return all(self._fits_one(demand, name) for demand in group.demands)

    def _fits_one(self, demand: ComponentDemand, name: str) -> bool:
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

    def _best_worker(self, group: ReplicaGroup) -> tuple[str, str] | None:
        """Returns the worker that gets a replica of each component, and why; None for none."""
        components = {c for demand in group.demands for c in demand.info.components}
        ranked = []
        for name, worker in self._able.items():
            needs_mib = group.memory_mib(self._pinned[name])
            if worker.draining or not self._fits(group, name) or needs_mib > self._free[name]:
                continue
            far = sum(n for digest, n in components if digest not in worker.local)
            is_open = all(d.info.signature in worker.instances for d in group.demands)
            price = worker.shape.price_nanousd_per_hour
            ranked.append(
                (
                    needs_mib > 0,
                    not is_open,
                    far,
                    price,
                    self._others(group, name),
                    -self._free[name],
                    name,
                )
            )
        if not ranked:
            return None
        loads, is_closed, far, *_, name = min(ranked)
        if not loads or not is_closed:
            return name, "its engine is open there"
        near = "has its files and " if components and not far else ""
        return name, f"{near}is the cheapest of {len(ranked)} that can load it"

    def _others(self, group: ReplicaGroup, name: str) -> int:
        """Returns how many other components that are short could use the worker."""
        return sum(
            other is not group
            and self._fits(other, name)
            and other.memory_mib(self._pinned[name]) <= self._free[name]
            for other in self._short
        )


def _is_loaded(worker: WorkerView, demand: ComponentDemand) -> bool:
    instance = worker.instances.get(demand.info.signature)
    return instance is not None and not instance.load_remaining_s > 0
