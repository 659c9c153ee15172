"""Actions that wait for a placement, as the scheduler sees them."""

from math import frexp

import msgspec
from msgspec.structs import force_setattr

from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest

NEGLIGIBLE_BYTES = 64 * 1024
"""Inputs up to this size come with the assignment or in one read; their location does not matter.
"""

SEQUENCES_AT_ONCE = 256
"""Sequences that an engine decodes side by side; more wait (vLLM's ``max_num_seqs``)."""

Rank = tuple[int, float, float, float, Digest]
Kind = tuple[object, ...]


class WorkSize(msgspec.Struct, frozen=True, gc=False):
    """Predicted size of an action, for the cost model.

    Attributes:
        units: in the contract's ``work_unit`` (prompt plus generated tokens, rows ...).
        tokens_in: prompt tokens, ``tokens_out`` generated ones (upper estimates).
        decode_steps: decoding steps one after another: the action's sequences decode side by side,
            so these are the tokens of one. 0 stands for a single sequence.
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
        """How many sequences decode side by side."""
        return max(1.0, self.tokens_out / self.decode_steps) if self.decode_steps else 1.0

    def towards(self, other: "WorkSize", share: float) -> "WorkSize":
        """Returns the size that lies a share of the way to another one: a step of a mean."""

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
        action_id: its name.
        signature: what it must share with others to run in one instance; all actions of one
            signature share requirement and components.
        tenant: the namespace that the fair order counts it to (the first subscriber's).
        priority: the highest of its subscribers.
        deadline_s: absolute; infinity where none.
        critical_path_s: predicted seconds of the longest path from here to the end of its run.
        ready_s: when it became ready (absolute).
        work: predicted size.
        inputs: digests of inputs that are not components, with sizes in bytes.
        weights: coefficients of the utility.
        isolate: it must run alone, in an instance of its own.
        avoid_workers: workers where it failed: used only where there is no other.
        replica_of: worker that runs the original, for a replica attempt; empty otherwise.
        not_before_s: end of its backoff; not placed before.
        reserved_pools: names of the reserved pools that it may run in.
        min_trust: the least trust of the pool that may run it.
        code_tenant: the tenant whose user code it is, where single-tenant workers are connected;
            else empty, so that actions of several tenants are of one kind.
        bounded_tenants: those that want it, where the workers of each are bounded; else empty.
        rank: its position in the order: priority, deadline slack, critical path, age; then the
            name, so that the order is total. Slack is the deadline less the critical path; the time
            of the cycle is the same for all.
        kind: what makes actions interchangeable; sizes count by powers of four.
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
        """Computes ``rank`` and ``kind`` once, since every cycle reads them of every action."""
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
