"""What a plan of replicas is made from: components with their demand, and the fleet."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.fleet.snapshot import SignatureInfo, WorkerView
from flowmesh_core.protocol.messages import PrewarmSpec
from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_core.units import Digest


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
        affinity: the group of the service whose replicas are on one worker together; empty for
            none.
        trusted: it is code outside the sandbox, which only pools of enough trust run.
        timings: by stage that calls it, what a call may take.
        halvings: (pool, device class) → how often its calls at once are halved there.
        ttft_s: see ``ServingReplica``; so is ``tpot_s``.
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
    affinity: str = ""
    trusted: bool = False
    timings: Mapping[str, StageTiming] = field(default_factory=dict)
    halvings: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ttft_s: float = 0.0
    tpot_s: float = 0.0

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

    def served_per_s(self, device_class: str) -> float:
        """Returns what a replica serves on a class of device; 0 where it is not known."""
        return self.capacity_per_s.get(device_class, 0.0)


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
        ready: ids of replicas that take calls, as the workers report that they were given to.
        failed: ids of those that their workers could not load.
        pinned: worker → signatures whose memory is reserved there.
        pools: those that can grow.
        reserved: names of all reserved pools.
    """

    workers: Sequence[WorkerView]
    leaving: Collection[str] = frozenset()
    held: Mapping[str, Collection[str]] = field(default_factory=dict)
    reported: Collection[str] = frozenset()
    ready: Collection[str] = frozenset()
    failed: Collection[str] = frozenset()
    pinned: Mapping[str, Collection[Digest]] = field(default_factory=dict)
    pools: Sequence[PoolView] = ()
    reserved: Collection[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Components whose replicas are placed together: all of them on a worker, or none.

    A component without affinity is a group of its own.

    Attributes:
        demands: of its components, at least one.
    """

    demands: tuple[ComponentDemand, ...]

    @property
    def key(self) -> tuple[str, str]:
        """The service and the first of its components."""
        return self.demands[0].key

    @property
    def service(self) -> str:
        """``namespace/name``."""
        return self.demands[0].service

    def owns(self, replica_id: str) -> bool:
        """Returns whether a replica is of one of its components, of any release."""
        return any(replica_id.startswith(f"{d.service}/{d.component}/") for d in self.demands)

    def served_part(self, device_classes: Collection[str]) -> float:
        """Returns the part of their demand that replicas on these devices serve.

        Args:
            device_classes: one for each replica; of several components each has so many.

        Returns:
            Of the component with the smallest part; infinite where nothing is asked for.
        """
        return min(
            sum(map(demand.served_per_s, device_classes)) / demand.rate_per_s
            if demand.rate_per_s
            else float("inf")
            for demand in self.demands
        )

    @property
    def wanted(self) -> int:
        """How many replicas of each there should be: as many as the busiest needs."""
        return max(demand.wanted for demand in self.demands)

    @property
    def spare(self) -> int:
        """Of the wanted ones, those beyond the least number."""
        return self.wanted - max(demand.wanted - demand.spare for demand in self.demands)

    def memory_mib(self, pinned: Collection[Digest] = ()) -> int:
        """Returns the memory that a replica of each adds to a worker.

        Args:
            pinned: signatures whose memory is reserved there already.
        """
        by_signature = {d.info.signature: d.memory_mib for d in self.demands}
        return sum(mib for signature, mib in by_signature.items() if signature not in pinned)


def grouped(demands: Sequence[ComponentDemand]) -> list[ReplicaGroup]:
    """Returns the groups of components, in the order of their first components."""
    found: dict[tuple[str, str, str], list[ComponentDemand]] = {}
    for demand in demands:
        alone = "" if demand.affinity else demand.component
        found.setdefault((demand.service, demand.affinity, alone), []).append(demand)
    return [ReplicaGroup(tuple(members)) for members in found.values()]
