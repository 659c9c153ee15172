"""A worker as the machine knows it.

Only the modules of this package change it, in place. Projections read it.
"""

from collections import Counter
from dataclasses import dataclass, field

from flowmesh_core.accounting.meter import WorkerMeter
from flowmesh_core.machine.model import Attempt
from flowmesh_core.protocol.messages import (
    Component,
    EngineInstanceState,
    RouterAddress,
    ServingReplica,
    ServingReplicaState,
    WorkerShape,
)
from flowmesh_core.units import Digest


@dataclass(slots=True, eq=False)
class Worker:
    """A worker as the machine knows it.

    Attributes:
        attempts: attempts assigned to it and not ended, by id.
        by_signature: the same by signature, since there may be thousands.
        tenants: namespace → its attempts here that no other namespace wanted when they came.
        local_digests: digests that it is known to have on disk, newest last.
        idle_nanousd: of its bill in this epoch, what no attempt was charged.
        prewarmed: signatures that its last prewarm plan names; None before one was sent.
        loading_since_s: by signature, when the control plane first saw its host load.
        code_tenant: of a single-tenant worker, whose user code it runs; empty before the first.
        serves: whether it can hold replicas of services.
        replicas: those that it was sent last, with ``routers``; None before any since it connected.
        replica_states: as it reported them, by id.
        services: replica → the service that pays for it, of those that it was sent.
        loads_begun_s: replica → when it was sent, or tried again; of those not ready since.
        metered_calls: replica → units of work of its calls that are paid for.
        unpriced: of a worker without a price, its time at the price of fair shares.
        store_problem: why it cannot reach the store; it gets nothing new until it can.
        busy_s: seconds of its instances that had attempts and were loaded, counted until
            ``counted_s``.
    """

    shape: WorkerShape
    incarnation: str
    meter: WorkerMeter
    started_s: float
    last_seen_s: float
    instances: tuple[EngineInstanceState, ...] = ()
    components: tuple[Component, ...] = ()
    attempts: dict[str, Attempt] = field(default_factory=dict)
    by_signature: dict[Digest, dict[str, Attempt]] = field(default_factory=dict)
    tenants: Counter[str] = field(default_factory=Counter)
    local_digests: dict[Digest, None] = field(default_factory=dict)
    idle_nanousd: int = 0
    unpriced: WorkerMeter | None = None
    draining: bool = False
    prewarmed: tuple[Digest, ...] | None = None
    loading_since_s: dict[str, float] = field(default_factory=dict)
    code_tenant: str = ""
    serves: bool = False
    replicas: tuple[ServingReplica, ...] | None = None
    routers: tuple[RouterAddress, ...] = ()
    replica_states: dict[str, ServingReplicaState] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    loads_begun_s: dict[str, float] = field(default_factory=dict)
    metered_calls: dict[str, int] = field(default_factory=dict)
    store_problem: str = ""
    busy_s: float = 0.0
    counted_s: float = 0.0

    @property
    def name(self) -> str:
        """The worker's name."""
        return self.shape.name

    def add(self, attempt: Attempt) -> None:
        """Adds an attempt that was assigned to it."""
        attempt.busy_from_s = self.count_busy(attempt.assigned_s)
        self.attempts[attempt.attempt_id] = attempt
        self.by_signature.setdefault(attempt.info.signature, {})[attempt.attempt_id] = attempt
        if attempt.tenant:
            self.tenants[attempt.tenant] += 1

    def count_busy(self, now_s: float) -> float:
        """Counts its busy instances until now; returns the sum of their seconds."""
        passed_s = now_s - self.counted_s
        if passed_s > 0.0:
            busy = len(self.by_signature)
            if self.loading_since_s:
                busy -= len(self.by_signature.keys() & self.loading_since_s.keys())
            self.busy_s += busy * passed_s
            self.counted_s = now_s
        return self.busy_s

    def remove(self, attempt_id: str) -> Attempt | None:
        """Removes an attempt and returns it; None where it is not assigned to this worker."""
        attempt = self.attempts.pop(attempt_id, None)
        if attempt is not None:
            signature = attempt.info.signature
            same = self.by_signature[signature]
            del same[attempt_id]
            if not same:
                del self.by_signature[signature]
            if attempt.tenant:
                self.tenants[attempt.tenant] -= 1
                if not self.tenants[attempt.tenant]:
                    del self.tenants[attempt.tenant]
        return attempt
