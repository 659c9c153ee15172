"""Groups of ready actions that share their scores: one signature, one policy, similar size.

Ten thousand ready actions form a few hundred groups, and a cycle works per group wherever it can.
The locations of an action's own inputs are looked up only when the action is nominated
(``input_locality``).
"""

from math import inf

import msgspec

from flowmesh_core.fleet.ready import NEGLIGIBLE_BYTES, Kind, ReadyAction, WorkSize
from flowmesh_core.fleet.ready_index import ReadyGroup
from flowmesh_core.fleet.snapshot import SignatureInfo, Snapshot
from flowmesh_core.graph.plan import UtilityWeights


class ActionGroup(msgspec.Struct, eq=False, gc=False):
    """Actions that placement treats as interchangeable in one cycle.

    Attributes:
        ready: the actions.
        count: the number of actions.
        work: the mean size, used for every action. The mean is taken over all policies, so that
            groups that differ only in their weights share their predictions.
        bound: whether some workers may be closed to its tenants; see ``SchedulingCycle.admits``.
        cohort: identifies the groups that share predictions.
    """

    ready: ReadyGroup
    info: SignatureInfo
    weights: UtilityWeights
    isolate: bool
    avoid_workers: frozenset[str]
    replica_of: str
    reserved_pools: frozenset[str]
    code_tenant: str
    bounded_tenants: frozenset[str]
    bound: bool
    cohort: Kind
    count: int
    work: WorkSize

    @property
    def large_bytes(self) -> int:
        """Mean bytes of the inputs that are not components; 0 if negligible."""
        mean = self.work.input_bytes
        return mean if mean > NEGLIGIBLE_BYTES else 0

    @property
    def cautions(self) -> tuple[object, ...]:
        """The restrictions on its workers that do not come from its signature.

        In order: isolation, workers where it failed, the worker of the original attempt, trust, the
        tenant of its user code, the reserved pools open to it, and the tenants with a bound on
        their workers.
        """
        return (
            self.isolate,
            self.avoid_workers,
            self.replica_of,
            self.info.requirement.min_trust,
            self.code_tenant,
            self.reserved_pools,
            self.bounded_tenants,
        )

    @property
    def restrictions(self) -> tuple[object, ...]:
        """Everything that decides which workers can run it: its signature and its cautions."""
        return (self.info.signature, *self.cautions)

    @property
    def excluded(self) -> frozenset[str]:
        """The workers to avoid if any other can run it, and the worker of a replica's original.

        The original's worker is never used.
        """
        return self.avoid_workers | {self.replica_of} if self.replica_of else self.avoid_workers


def groups_of(snapshot: Snapshot) -> list[ActionGroup]:
    """Returns the groups of a snapshot's ready actions. Actions in backoff have no group."""
    return [_group(snapshot, ready) for ready in snapshot.ready.groups.values()]


def group_of(snapshot: Snapshot, kind: Kind) -> ActionGroup:
    """Returns the group of actions of one kind."""
    return _group(snapshot, snapshot.ready.groups[kind])


def _group(snapshot: Snapshot, ready: ReadyGroup) -> ActionGroup:
    like, cohort = ready.like, ready.cohort
    return ActionGroup(
        ready,
        snapshot.signatures[like.signature].with_trust(like.min_trust),
        like.weights,
        like.isolate,
        like.avoid_workers,
        like.replica_of,
        like.reserved_pools,
        like.code_tenant,
        like.bounded_tenants,
        bool(like.code_tenant or like.bounded_tenants),
        cohort.name,
        ready.count,
        cohort.work,
    )


def is_urgent(action: ReadyAction) -> bool:
    """Whether the action has a deadline."""
    return action.deadline_s != inf
