"""The input of a scheduling cycle: an indexed, read-only view that is valid for one cycle.

Made by the machine from its workers and ready set; read by ``placement.decide`` and by ``fmesh
explain``. Nothing may retain it beyond the cycle.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_api.v1.why import ScoredWorker, UtilityTerms
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.worker_bounds import WorkerUse
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.units import Digest

PlacementKey = tuple[Digest, int, str, frozenset[str], frozenset[str]]
"""What reasons for not placing an action go by: signature, trust, tenant of user code, reserved
pools, and tenants whose workers are bounded."""


class Tier(StrEnum):
    """How near bytes are, nearest first."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    ZONE = "zone"
    FAR = "far"


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An engine instance that runs or starts.

    Attributes:
        signature: what its actions share.
        capacity: actions that it runs at once (1 while unknown).
        assigned: actions assigned to it and not ended.
        remaining_s: predicted seconds until these are done.
        load_remaining_s: predicted seconds until it is loaded; 0 when ready.
        memory_mib: what it reserves.
        isolated: it serves one isolated action and takes nothing else.
        suspects: it serves a group of suspects.
        tightest_deadline_s: the earliest deadline of its actions (absolute); infinity if none.
        pinned: it is that of a replica of a service: its memory is reserved even while idle.
    """

    signature: Digest
    capacity: int
    assigned: int
    remaining_s: float
    load_remaining_s: float
    memory_mib: int
    isolated: bool = False
    suspects: bool = False
    tightest_deadline_s: float = float("inf")
    pinned: bool = False

    @property
    def freed_mib(self) -> int:
        """The memory that is free once its actions are done."""
        return 0 if self.pinned else self.memory_mib


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker that may be given work.

    Attributes:
        shape: as it reported it.
        instances: its engine instances by signature.
        local: digests of components and inputs that it has, with the tier.
        free_memory_mib: device memory not reserved by instances with actions, nor for replicas of
            services. The worker evicts other idle instances on demand, so their memory is free.
        draining: takes nothing new.
        code_tenant: the tenant whose user code a single-tenant worker runs; empty before the first.
        replicas: replicas of services that are loaded or to be loaded here: it is busy.
        serves: whether it can hold any.
        replica_memory_mib: memory that is reserved for them, whatever they do.
        asleep: signatures whose engine instance is asleep here: it is woken where one would be
            started, and needs its memory back for that.
    """

    shape: WorkerShape
    instances: Mapping[Digest, InstanceView]
    local: Mapping[Digest, Tier]
    free_memory_mib: int
    draining: bool = False
    code_tenant: str = ""
    replicas: int = 0
    serves: bool = False
    replica_memory_mib: int = 0
    asleep: Collection[Digest] = frozenset()

    @property
    def name(self) -> str:
        """The worker's name."""
        return self.shape.name


@dataclass(frozen=True, slots=True)
class Requirement:
    """Hard constraints of the actions of one signature (shared by all of a group).

    Attributes:
        minor: the least minor of the contract that knows everything that the actions set.
        memory_mib: memory for an instance on each of its devices, learned raises included.
        capacity_factor: share of an instance's capacity that may be admitted (halved after running
            out of memory), by device class; 1.0 where absent.
        min_memory_by_class: device class → a worker must have more memory than this (learned).
        implementation, dtype, batch_invariant: the engine variant; empty and None are any.
        checks_variants: whether the engine has these fields at all.
        tensor_parallel: devices needed.
        user_code: needs a pool that allows user code.
        builtin_model: needs an image with this built-in model; empty is none.
        gpu_product: allowed device classes; empty is any.
        labels: must all match; ``anti_labels`` must not.
        min_trust: the least trust of the worker's pool. Actions of one signature may differ in it.
    """

    engine: str
    contract: int
    implementation_version: int
    memory_mib: int
    checks_variants: bool = False
    implementation: str = ""
    dtype: str = ""
    batch_invariant: bool | None = None
    tensor_parallel: int = 1
    user_code: bool = False
    builtin_model: str = ""
    gpu_product: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    anti_labels: Mapping[str, str] = field(default_factory=dict)
    capacity_factor: Mapping[str, float] = field(default_factory=dict)
    min_memory_by_class: Mapping[str, int] = field(default_factory=dict)
    minor: int = 0
    min_trust: int = 0


@dataclass(frozen=True, slots=True)
class SignatureInfo:
    """What the actions of one signature share.

    Attributes:
        components: digests of components with sizes in bytes.
        capacity: actions that one instance runs at once, by the contract (an instance may know
            better).
        sequences: that one of its actions decodes side by side, on average.
        suspects_of: of a group of suspects, which run in a host of their own: the signature that
            they have otherwise; None for any other.
    """

    signature: Digest
    requirement: Requirement
    components: tuple[tuple[Digest, int], ...] = ()
    capacity: int = 1
    work_unit: str = "rows"
    sequences: float = 1.0
    suspects_of: Digest | None = None

    @property
    def base(self) -> Digest:
        """The signature under which costs, memory limits and demand are learned."""
        return self.suspects_of or self.signature

    def with_trust(self, min_trust: int) -> "SignatureInfo":
        """Returns the same for actions that require this trust."""
        if self.requirement.min_trust == min_trust:
            return self
        return replace(self, requirement=replace(self.requirement, min_trust=min_trust))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one cycle decides on.

    Attributes:
        workers: those that may be given work, in order of name.
        ready: actions that wait.
        signatures: by signature, for all ready actions.
        fair_share: tenant → virtual time (decayed paid dollars over weight); less is served first.
        now_s: the time of the cycle.
        tenant_weights: tenant → weight of its fair share; 1 where absent.
        reserved_pools: names of the pools that take only actions which name them.
        code_calls: tenant → its calls of user code, where they are bounded.
        worker_uses: tenant → the workers that it uses, where they are bounded.
    """

    workers: Sequence[WorkerView]
    ready: ReadyIndex
    signatures: Mapping[Digest, SignatureInfo]
    fair_share: Mapping[str, float]
    now_s: float
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    reserved_pools: Collection[str] = frozenset()
    code_calls: Mapping[str, "CodeCalls"] = field(default_factory=dict)
    worker_uses: Mapping[str, WorkerUse] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CodeCalls:
    """The attempts of user code that a namespace has, and may have."""

    running: int
    most: int

    @property
    def free(self) -> int:
        """How many more it may start."""
        return self.most - self.running


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A batch of actions of one signature and the worker that it goes to.

    Attributes:
        reserve_nanousd: predicted p95 cost of each action, in the order of ``actions``.
        predicted_s: predicted run seconds of each action.
        terms: of the first action of the batch.
        candidates: the chosen worker, and then the best of the others, a few.
    """

    worker: str
    signature: Digest
    actions: tuple[Digest, ...]
    terms: UtilityTerms
    predicted_s: tuple[float, ...]
    reserve_nanousd: tuple[int, ...]
    candidates: tuple[ScoredWorker, ...] = ()


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """Why ``count`` ready actions of one signature were not placed.

    Attributes:
        detail: one sentence for users: what is missing and what to change.
        code_tenant: the tenant whose actions these are, where single-tenant workers run the user
            code of the signature; else empty.
        min_trust: that they require.
        reserved_pools: names of the reserved pools that they may run in; unset where there are
            none, and then left out of traces.
        bounded_tenants: that want them, where the workers of all of these are bounded; else unset.
    """

    signature: Digest
    cause: RejectionCause
    count: int
    detail: str
    code_tenant: str = ""
    min_trust: int = 0
    reserved_pools: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    bounded_tenants: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def key(self) -> PlacementKey:
        """The kind of action that it is for."""
        tenants = frozenset(self.bounded_tenants or ())
        return self.signature, self.min_trust, self.code_tenant, self.pools, tenants

    @property
    def pools(self) -> frozenset[str]:
        """The reserved pools that they may run in."""
        return frozenset(self.reserved_pools or ())


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a cycle."""

    placements: tuple[Placement, ...]
    rejections: tuple[Rejection, ...]
