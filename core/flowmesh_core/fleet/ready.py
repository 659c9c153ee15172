"""Actions that wait for a placement, as the scheduler sees them."""

from math import frexp

import msgspec
from msgspec.structs import force_setattr

from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest

NEGLIGIBLE_BYTES = 64 * 1024
"""Inputs up to this size arrive with the assignment or in one read; their location does not matter.
"""

SEQUENCES_AT_ONCE = 256
"""Sequences that an engine decodes at once; more have to wait (vLLM's ``max_num_seqs``)."""

Rank = tuple[int, float, float, float, Digest]
Kind = tuple[object, ...]


class WorkSize(msgspec.Struct, frozen=True, gc=False):
    """Predicted size of an action, for the cost model.

    Attributes:
        units: amount in the contract's ``work_unit`` (prompt plus generated tokens, rows ...).
        tokens_in: prompt tokens (upper estimate).
        tokens_out: generated tokens (upper estimate).
        decode_steps: decoding steps in sequence. The action's sequences decode in parallel, so this
            is the number of tokens of one sequence. 0 means that there is only one.
        input_bytes: bytes of inputs that are not components.
        component_bytes: bytes of components.
    """

    units: float = 1.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    input_bytes: int = 0
    component_bytes: int = 0
    decode_steps: float = 0.0

    @property
    def sequences(self) -> float:
        """How many sequences decode in parallel."""
        return max(1.0, self.tokens_out / self.decode_steps) if self.decode_steps else 1.0

    def towards(self, other: "WorkSize", share: float) -> "WorkSize":
        """Returns this size moved towards another one by a share of the difference."""

        def step(its: float, others: float) -> float:
            return its + share * (others - its)

        return WorkSize(
            step(self.units, other.units),
            step(self.tokens_in, other.tokens_in),
            step(self.tokens_out, other.tokens_out),
            round(step(self.input_bytes, other.input_bytes)),
            round(step(self.component_bytes, other.component_bytes)),
            step(self.decode_steps, other.decode_steps),
        )


class ReadyAction(msgspec.Struct, frozen=True, gc=False):
    """An action that waits for a placement.

    Attributes:
        action_id: the action's id.
        signature: what it must share with others to run in one instance. All actions of one
            signature share components and requirement, except for ``min_trust``.
        tenant: the namespace that it counts for in the fair order (the first subscriber's).
        priority: the highest priority of its subscribers.
        deadline_s: absolute; infinity if there is none.
        critical_path_s: predicted seconds of the longest path from this action to the end of its
            run.
        ready_s: when it became ready (absolute).
        work: predicted size.
        inputs: digests of inputs that are not components, with sizes in bytes.
        weights: coefficients of the utility.
        isolate: whether it must run alone, in an instance of its own.
        avoid_workers: workers where it failed; used only if there is no other.
        replica_of: for a replica attempt, the worker that runs the original; empty otherwise.
        not_before_s: end of its backoff; it is not placed earlier.
        reserved_pools: names of the reserved pools that it may run in.
        min_trust: the least trust of a pool that may run it.
        code_tenant: the tenant that owns the user code, if single-tenant workers are connected;
            else empty, so that actions of different tenants can be of one kind.
        bounded_tenants: the tenants that want it, if the workers of all of them are bounded; else
            empty.
        rank: its position in the order: by priority, deadline slack, critical path and age, then by
            id, so that no two ranks are equal. The slack is the deadline minus the critical path;
            the time of the cycle is left out because it is the same for all.
        kind: equal for interchangeable actions; sizes are rounded to powers of four.
    """

    action_id: Digest
    signature: Digest
    tenant: str
    priority: int
    deadline_s: float
    critical_path_s: float
    ready_s: float
    work: WorkSize
    inputs: tuple[tuple[Digest, int], ...] = ()
    weights: UtilityWeights = UtilityWeights()
    isolate: bool = False
    avoid_workers: frozenset[str] = frozenset()
    replica_of: str = ""
    not_before_s: float = 0.0
    reserved_pools: frozenset[str] = frozenset()
    min_trust: int = 0
    rank: Rank = (0, 0.0, 0.0, 0.0, Digest(""))
    kind: Kind = ()
    code_tenant: str = ""
    bounded_tenants: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Computes ``rank`` and ``kind`` once, because every cycle reads them for each action."""
        path_s, work = self.critical_path_s, self.work
        rank = (-self.priority, self.deadline_s - path_s, -path_s, self.ready_s, self.action_id)
        size = frexp(work.units + work.tokens_in + work.tokens_out)[1] // 2
        large = work.input_bytes.bit_length() // 2 if work.input_bytes > NEGLIGIBLE_BYTES else 0
        kind: Kind = (self.weights, self.signature, size, large)
        if self.isolate or self.avoid_workers or self.replica_of or self.code_tenant:
            cautions = (self.isolate, self.avoid_workers, self.replica_of, self.code_tenant)
            kind = (*kind, cautions)
        if self.reserved_pools:
            kind = (*kind, self.reserved_pools)
        if self.min_trust:
            kind = (*kind, self.min_trust)
        if self.bounded_tenants:
            kind = (*kind, ("bounded", self.bounded_tenants))
        force_setattr(self, "rank", rank)
        force_setattr(self, "kind", kind)
