"""Ready actions that share their scores: one signature, one policy, much the same size.

Ten thousand ready actions are a few dozen groups; everything that costs time is done per group.
Where single inputs lie is looked at when an action is served, see ``inputs``.
"""

from dataclasses import dataclass, field
from math import fsum, inf

from flowmesh_core.fleet.snapshot import (
    NEGLIGIBLE_BYTES,
    Kind,
    ReadyAction,
    SignatureInfo,
    Snapshot,
    Work,
)
from flowmesh_core.graph.plan import Weights
from flowmesh_core.units import Digest


@dataclass(slots=True, eq=False)
class Group:
    """Actions that are interchangeable where placement is concerned.

    Attributes:
        left: its actions without a place, in no order.
        count: how many there were.
        work: the mean size, which stands for all of them; over all policies, so that groups which
            differ in their weights alone share their predictions.
        cohort: names those that share them.
    """

    info: SignatureInfo
    weights: Weights
    isolate: bool
    avoid: frozenset[str]
    replica_of: str
    cohort: Kind
    left: list[ReadyAction] = field(default_factory=list)
    count: int = 0
    work: Work = field(default_factory=Work)

    @property
    def large_bytes(self) -> int:
        """Mean size of the inputs that are no components, 0 where it is negligible."""
        mean = self.work.input_bytes
        return mean if mean > NEGLIGIBLE_BYTES else 0

    @property
    def excluded(self) -> frozenset[str]:
        """Names of workers that are taken only where there is no other, or never (a replica's)."""
        return self.avoid | {self.replica_of} if self.replica_of else self.avoid


def collect(snapshot: Snapshot) -> tuple[list[Group], dict[Digest, int]]:
    """Sorts the ready actions into groups.

    Returns:
        The groups in order of their first action, and the actions in backoff by signature.
    """
    groups: dict[Kind, Group] = {}
    backoff: dict[Digest, int] = {}
    now_s = snapshot.now_s
    find = groups.get
    for action in snapshot.ready:
        if action.not_before_s > now_s:
            backoff[action.signature] = backoff.get(action.signature, 0) + 1
            continue
        group = find(action.kind)
        if group is None:
            group = groups[action.kind] = _new_group(snapshot, action)
        group.left.append(action)
    found = list(groups.values())
    _measure(found)
    return found, backoff


def _new_group(snapshot: Snapshot, action: ReadyAction) -> Group:
    return Group(
        info=snapshot.signatures[action.signature],
        weights=action.weights,
        isolate=action.isolate,
        avoid=action.avoid,
        replica_of=action.replica_of,
        cohort=action.kind[1:],
    )


def _measure(groups: list[Group]) -> None:
    """Counts the groups and finds the mean size of every cohort, whatever its order."""
    cohorts: dict[Kind, list[Group]] = {}
    for group in groups:
        group.count = len(group.left)
        cohorts.setdefault(group.cohort, []).append(group)
    for members in cohorts.values():
        works = [action.work for group in members for action in group.left]
        n = len(works)
        mean = Work(
            units=fsum([w.units for w in works]) / n,
            tokens_in=fsum([w.tokens_in for w in works]) / n,
            tokens_out=fsum([w.tokens_out for w in works]) / n,
            input_bytes=sum([w.input_bytes for w in works]) // n,
            component_bytes=max([w.component_bytes for w in works]),
        )
        for group in members:
            group.work = mean


def is_urgent(action: ReadyAction) -> bool:
    """Whether the action has a deadline."""
    return action.deadline_s != inf
