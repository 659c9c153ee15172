"""Which workers can take replicas, and which of them should, while a plan is made.

Used by ``replica_placement`` and ``move_planner``: what one of them gives to a worker, the other
finds there.
"""

from collections.abc import Collection, Sequence

from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.placement.constraints import unmet_in_pool
from flowmesh_core.protocol.messages import ServingReplica
from flowmesh_core.serving.plan.code_tenants import CodeTenants
from flowmesh_core.serving.plan.component_demand import ComponentDemand, FleetView, ReplicaGroup


class WorkerChoice:
    """The workers with what a plan has given them so far.

    Attributes:
        fleet: what there is.
        able: workers that may have replicas, by name.
        free_mib: memory that nothing has, by worker.
        pinned: signatures whose memory is reserved, by worker.
        given: replicas of the plan, by worker, in the order of loading.
        tenants: whose code each worker may hold.
        rivals: groups that wait for a place; where workers are equal, one is taken that few of
            them could use.
    """

    def __init__(self, fleet: FleetView) -> None:
        """Begins with a fleet and an empty plan."""
        self.fleet = fleet
        self.able = {w.name: w for w in fleet.workers if w.name not in fleet.leaving}
        self.free_mib = {w.name: w.free_memory_mib for w in fleet.workers}
        self.pinned = {name: set(fleet.pinned.get(name, ())) for name in self.able}
        self.given: dict[str, list[ServingReplica]] = {}
        self.tenants = CodeTenants(fleet.workers)
        self.rivals: Sequence[ReplicaGroup] = ()

    def device_class(self, name: str) -> str:
        """Returns the class of a worker's device."""
        return self.able[name].shape.device_class

    def give(self, demand: ComponentDemand, name: str, replica_id: str) -> None:
        """Adds a replica to the plan."""
        shape = self.able[name].shape
        replica = ServingReplica(
            replica_id,
            demand.service,
            demand.component,
            demand.release,
            demand.opening,
            demand.calls_max,
            dict(demand.salts),
            dict(demand.timings),
            demand.halvings.get((shape.pool, shape.device_class), 0),
            demand.ttft_s,
            demand.tpot_s,
        )
        self.given.setdefault(name, []).append(replica)
        self.tenants.bind(demand, name)

    def give_new(self, group: ReplicaGroup, name: str) -> tuple[str, ...]:
        """Adds a new replica of each component, with its memory; returns their ids."""
        self.free_mib[name] -= group.memory_mib(self.pinned[name])
        self.pinned[name].update(demand.info.signature for demand in group.demands)
        ids = tuple(demand.prefix + self._free_number(demand) for demand in group.demands)
        for demand, replica_id in zip(group.demands, ids, strict=True):
            self.give(demand, name, replica_id)
        return ids

    def _free_number(self, demand: ComponentDemand) -> str:
        """Returns the least number that no replica of the component has, nor had on a worker."""
        known = {replica_id for ids in self.fleet.held.values() for replica_id in ids}
        known |= {r.replica_id for found in self.given.values() for r in found}
        return next(str(n) for n in range(len(known) + 1) if f"{demand.prefix}{n}" not in known)

    def may_hold(self, demand: ComponentDemand, name: str) -> bool:
        """Returns whether a worker may have a replica, fast enough or not, were there memory."""
        worker, fleet = self.able[name], self.fleet
        if not self.tenants.admits(demand, name):
            return False
        if not worker.serves or any(
            r.replica_id.startswith(demand.prefix) for r in self.given.get(name, ())
        ):
            return False
        unmet = unmet_in_pool(
            demand.info.requirement, worker.shape, fleet.reserved, demand.reserved_pools
        )
        return unmet is None

    def fits(self, group: ReplicaGroup, name: str) -> bool:
        """Returns whether a worker may be given a replica of each component, were there memory."""
        return all(
            self.device_class(name) not in demand.too_slow and self.may_hold(demand, name)
            for demand in group.demands
        )

    def candidates(self, group: ReplicaGroup) -> list[str]:
        """Returns the workers that can take a replica of each component now."""
        return [
            name
            for name, worker in self.able.items()
            if not worker.draining and self.fits(group, name) and self.lacking_mib(group, name) <= 0
        ]

    def lacking_mib(self, group: ReplicaGroup, name: str) -> int:
        """Returns the memory that a worker lacks for a replica of each component; negative: has."""
        return group.memory_mib(self.pinned[name]) - self.free_mib[name]

    def best(
        self, group: ReplicaGroup, among: Collection[str] | None = None
    ) -> tuple[str, str] | None:
        """Returns the worker that gets a replica of each component, and why; None for none.

        Args:
            group: the components.
            among: names of workers that have room; None for all that have.
        """
        components = {c for demand in group.demands for c in demand.info.components}
        ranked = []
        for name in self.candidates(group) if among is None else among:
            worker, needs_mib = self.able[name], group.memory_mib(self.pinned[name])
            far = sum(n for digest, n in components if digest not in worker.local)
            is_open = all(d.info.signature in worker.instances for d in group.demands)
            price = worker.shape.price_nanousd_per_hour
            ranked.append(
                (
                    needs_mib > 0,
                    not is_open,
                    far,
                    price,
                    self._rivals_of(group, name),
                    -self.free_mib[name],
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

    def _rivals_of(self, group: ReplicaGroup, name: str) -> int:
        """Returns how many other components that are short could use the worker."""
        return sum(
            other is not group and self.fits(other, name) and self.lacking_mib(other, name) <= 0
            for other in self.rivals
        )


def memory_mib(worker: WorkerView) -> int:
    """Returns all the memory of a worker's devices."""
    return worker.shape.device_memory_mib * worker.shape.devices
