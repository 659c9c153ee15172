"""The input of a scheduling cycle: an indexed, read-only view that is valid for one cycle.

The machine makes it from its workers and ready actions; ``placement.decide`` and ``fmesh explain``
read it. Nothing may retain it beyond the cycle.
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
"""The key of a reason why actions were not placed: signature, trust, tenant of user code, reserved
pools, and tenants whose workers are bounded."""


class Tier(StrEnum):
    """How near bytes are to a worker's devices, nearest first."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"
    ZONE = "zone"
    FAR = "far"


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An engine instance that is running or starting.

    Attributes:
        signature: the signature that its actions share.
        capacity: actions that it runs at once (1 while unknown).
        assigned: actions that are assigned to it and have not ended.
        remaining_s: predicted seconds until these actions are done.
        load_remaining_s: predicted seconds until it is loaded; 0 if it is ready.
        memory_mib: memory that it reserves.
        isolated: whether it runs an isolated action and takes nothing else.
        suspects: whether it runs a group of suspects.
        tightest_deadline_s: the earliest deadline of its actions (absolute); infinity if none.
        pinned: whether a replica of a service uses it, so its memory is reserved even while idle.
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
        """The memory that becomes free once its actions are done."""
        return 0 if self.pinned else self.memory_mib


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A connected worker.

    Attributes:
        shape: the shape that the worker reported, limited to what its pool declares.
        instances: its engine instances by signature.
        local: digests of the components and inputs that it has, each with its tier.
        free_memory_mib: device memory that is reserved neither by instances with actions nor for
            replicas of services. Idle instances are evicted on demand, so their memory is free.
        draining: whether it takes no new work.
        code_tenant: for a single-tenant worker, the tenant whose user code it runs; empty until it
            has run any.
        replicas: number of replicas of services that are loaded or to be loaded here. They keep the
            worker busy.
        serves: whether it can hold replicas of services.
        replica_memory_mib: memory reserved for these replicas, whether they are in use or not.
        asleep: signatures whose engine instance is asleep here. It is woken instead of starting a
            new one, and needs device memory again for that.
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
    """Hard constraints of the actions of one signature; all actions of a group share them.

    Attributes:
        minor: the lowest minor of the contract that has every parameter that the actions set.
        memory_mib: memory of an instance on each of its devices, including learned increases.
        capacity_factor: device class → share of an instance's capacity that may be admitted (halved
            after running out of memory); 1.0 if absent.
        min_memory_by_class: device class → memory that a worker's device must exceed (learned).
        implementation, dtype, batch_invariant: the engine variant; empty or None allows any.
        checks_variants: whether the engine has variants at all.
        tensor_parallel: number of devices needed.
        user_code: whether the pool must allow user code.
        builtin_model: built-in model that the image must have; empty for none.
        gpu_product: allowed device classes; empty allows any.
        labels: labels that must all match.
        anti_labels: labels that must not match.
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
        capacity: actions that one instance runs at once, according to the contract (a running
            instance may report another number).
        sequences: how many sequences one of its actions decodes in parallel, on average.
        suspects_of: for a group of suspects, which runs in a host of its own, the signature that
            its actions have otherwise; None for all others.
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
        """Returns the same information for actions that require this trust."""
        if self.requirement.min_trust == min_trust:
            return self
        return replace(self, requirement=replace(self.requirement, min_trust=min_trust))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one cycle decides on.

    Attributes:
        workers: the connected workers, in order of name.
        ready: the actions that wait.
        signatures: signature → what its actions share, for all ready actions.
        fair_share: tenant → virtual time (decayed paid dollars plus reserved ones, over weight);
            the tenant with the lowest is served first.
        now_s: the time of the cycle.
        tenant_weights: tenant → weight of its fair share; 1 if absent.
        reserved_pools: names of the reserved pools.
        code_calls: tenant → its calls of user code, for tenants with a limit on them.
        worker_uses: tenant → the workers that it uses, for tenants with a limit on them.
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
    """How many attempts of user code a namespace has in progress, and how many it may have."""

    running: int
    most: int

    @property
    def free(self) -> int:
        """How many more it may start."""
        return self.most - self.running


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A batch of actions of one signature and the worker that gets it.

    Attributes:
        reserve_nanousd: predicted p95 cost of each action, in the order of ``actions``.
        predicted_s: predicted run seconds of each action, in the same order.
        terms: the utility terms of the first action of the batch.
        candidates: the chosen worker, followed by a few of the next best ones.
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
        code_tenant: the tenant whose actions these are, if single-tenant workers run the
            signature's user code; else empty.
        min_trust: the trust that the actions require.
        reserved_pools: names of the reserved pools that the actions may run in; if there are none,
            it is unset and left out of traces.
        bounded_tenants: the tenants that want the actions, if the workers of all of them are
            bounded; else unset.
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
        """The kind of actions that were rejected."""
        tenants = frozenset(self.bounded_tenants or ())
        return self.signature, self.min_trust, self.code_tenant, self.pools, tenants

    @property
    def pools(self) -> frozenset[str]:
        """The reserved pools that the actions may run in."""
        return frozenset(self.reserved_pools or ())


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a cycle."""

    placements: tuple[Placement, ...]
    rejections: tuple[Rejection, ...]
