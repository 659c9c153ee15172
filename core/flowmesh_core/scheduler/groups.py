"""Ready actions that share their scores: one signature, one policy, much the same size and inputs.

Ten thousand ready actions are a few dozen groups; everything that costs time is done per group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, inf

from flowmesh_core.fleet.snapshot import ReadyAction, SignatureInfo, Snapshot, Tier, Work
from flowmesh_core.graph.plan import Weights
from flowmesh_core.units import Digest

NEGLIGIBLE_BYTES = 64 * 1024
"""Inputs up to this size arrive with the assignment or in one read; where they lie is no matter."""

Holders = tuple[tuple[int, Tier, int], ...]
"""(index of the worker, tier, bytes) of inputs that some worker holds."""

OrderKey = tuple[int, float, float, float, Digest, int]


@dataclass(slots=True)
class Group:
    """Actions that are interchangeable where placement is concerned.

    Attributes:
        queues: tenant → its actions with their order keys.
        work: sums over the actions while they are collected; ``mean_work`` divides.
        input_bytes: sum of the sizes of inputs that are no components.
    """

    info: SignatureInfo
    weights: Weights
    isolate: bool
    avoid: frozenset[str]
    replica_of: str
    holders: Holders
    first: ReadyAction
    queues: dict[str, list[tuple[OrderKey, ReadyAction]]] = field(default_factory=dict)
    count: int = 0
    units: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    input_bytes: int = 0
    has_deadline: bool = False

    def add(self, action: ReadyAction, key: OrderKey) -> None:
        """Takes an action into the queue of its tenant."""
        work = action.work
        self.count += 1
        self.units += work.units
        self.tokens_in += work.tokens_in
        self.tokens_out += work.tokens_out
        self.input_bytes += work.input_bytes
        if action.deadline_s != inf:
            self.has_deadline = True
        queue = self.queues.get(action.tenant)
        if queue is None:
            self.queues[action.tenant] = [(key, action)]
        else:
            queue.append((key, action))

    def mean_work(self) -> Work:
        """The size that stands for all of them."""
        n = self.count
        return Work(
            units=self.units / n,
            tokens_in=self.tokens_in / n,
            tokens_out=self.tokens_out / n,
            input_bytes=self.input_bytes // n,
            component_bytes=self.first.work.component_bytes,
        )

    @property
    def large_bytes(self) -> int:
        """Mean size of the inputs, 0 where it is negligible."""
        mean = self.input_bytes // self.count
        return mean if mean > NEGLIGIBLE_BYTES else 0


def order_key(action: ReadyAction, index: int) -> OrderKey:
    """Priority, deadline slack, critical path, age; then the name, so that the order is total.

    Slack is the deadline less the critical path; the time of the tick is the same for all.
    """
    return (
        -action.priority,
        action.deadline_s - action.critical_path_s,
        -action.critical_path_s,
        action.ready_s,
        action.action_id,
        index,
    )


def collect(snapshot: Snapshot) -> tuple[list[Group], dict[Digest, int]]:
    """Sorts the ready actions into groups.

    Returns:
        The groups in order of their first action, and the actions in backoff by signature.
    """
    near = _holders_by_input(snapshot)
    groups: dict[tuple[object, ...], Group] = {}
    backoff: dict[Digest, int] = {}
    now_s = snapshot.now_s
    signatures = snapshot.signatures
    for index, action in enumerate(snapshot.ready):
        if action.not_before_s > now_s:
            backoff[action.signature] = backoff.get(action.signature, 0) + 1
            continue
        work = action.work
        size = frexp(work.units + work.tokens_in + work.tokens_out)[1]
        holders = _holders(action, near) if near else ()
        key: tuple[object, ...]
        if holders or action.isolate or action.avoid or action.replica_of:
            key = (
                action.signature,
                action.weights,
                size,
                action.isolate,
                action.avoid,
                action.replica_of,
                holders,
            )
        else:
            key = (action.signature, action.weights, size)
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(
                info=signatures[action.signature],
                weights=action.weights,
                isolate=action.isolate,
                avoid=action.avoid,
                replica_of=action.replica_of,
                holders=holders,
                first=action,
            )
        group.add(action, order_key(action, index))
    return list(groups.values()), backoff


def _holders_by_input(snapshot: Snapshot) -> Mapping[Digest, list[tuple[int, Tier]]]:
    """For inputs of ready actions that are not negligible: which workers hold them."""
    wanted = {
        digest
        for action in snapshot.ready
        for digest, size in action.inputs
        if size > NEGLIGIBLE_BYTES
    }
    found: dict[Digest, list[tuple[int, Tier]]] = {}
    if wanted:
        for index, worker in enumerate(snapshot.workers):
            near = worker.near
            for digest in near.keys() & wanted:
                found.setdefault(digest, []).append((index, near[digest]))
    return found


def _holders(action: ReadyAction, near: Mapping[Digest, Sequence[tuple[int, Tier]]]) -> Holders:
    return tuple(
        sorted(
            (index, tier, size)
            for digest, size in action.inputs
            if size > NEGLIGIBLE_BYTES
            for index, tier in near.get(digest, ())
        )
    )
