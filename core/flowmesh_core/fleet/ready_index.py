"""An index of the ready actions. It stays sorted across cycles, since a cycle changes few of them.

The machine adds and removes actions; the scheduler reads them. Ten thousand actions form a few
hundred groups, and placement treats the actions of a group as interchangeable (ADR 13).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from sortedcontainers import SortedList

from flowmesh_core.fleet.ready import NEGLIGIBLE_BYTES, Kind, Rank, ReadyAction, WorkSize
from flowmesh_core.units import Digest

_T = TypeVar("_T")

FRACTIONS = 2**20
"""Sizes are summed as integers, in units of 1/FRACTIONS, so that a sum does not depend on the order
of additions and removals."""

Entry = tuple[Rank, ReadyAction, "ReadyGroup"]
"""Entries sort by rank; no two ranks are equal."""


@dataclass(slots=True, eq=False)
class Cohort:
    """Groups that differ only in their weights, so they share one mean size and its predictions.

    Attributes:
        name: the part of ``kind`` that its groups have in common.
    """

    name: Kind
    count: int = 0
    _units: int = 0
    _tokens_in: int = 0
    _tokens_out: int = 0
    _decode_steps: int = 0
    _input_bytes: int = 0
    _component_bytes: Counter[int] = field(default_factory=Counter)
    _mean: WorkSize | None = None

    def change(self, work: WorkSize, by: int) -> None:
        """Adds (``by`` = 1) or removes (-1) the work of an action."""
        self._mean = None
        self.count += by
        self._units += by * int(work.units * FRACTIONS)
        self._tokens_in += by * int(work.tokens_in * FRACTIONS)
        self._tokens_out += by * int(work.tokens_out * FRACTIONS)
        self._decode_steps += by * int(work.decode_steps * FRACTIONS)
        self._input_bytes += by * work.input_bytes
        _count(self._component_bytes, work.component_bytes, by)

    @property
    def work(self) -> WorkSize:
        """The mean size of its actions, and their largest component size; it must not be empty."""
        if self._mean is None:
            parts = FRACTIONS * self.count
            self._mean = WorkSize(
                units=self._units / parts,
                tokens_in=self._tokens_in / parts,
                tokens_out=self._tokens_out / parts,
                input_bytes=self._input_bytes // self.count,
                component_bytes=max(self._component_bytes),
                decode_steps=self._decode_steps / parts,
            )
        return self._mean


@dataclass(slots=True, eq=False)
class ReadyGroup:
    """Actions of one kind, none of them in backoff.

    Attributes:
        like: its first action, whose signature, weights and restrictions all of them share.
        queues: tenant → its actions in order of rank.
    """

    like: ReadyAction
    cohort: Cohort
    count: int = 0
    queues: dict[str, SortedList[Entry]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ReadyAction]:
        """Yields its actions, tenant by tenant."""
        return (action for queue in self.queues.values() for _, action, _ in queue)


class ReadyIndex:
    """Ready actions by group and tenant; actions in backoff are kept apart.

    Attributes:
        groups: the groups by kind.
        heads: tenant → its first action in each group, in order of rank.
        signatures: signature → number of actions in groups.
        sequences: signature → number of sequences that these actions decode.
        wanted: digests of inputs that are not negligible → number of actions that read them.
        backoff: actions in backoff, with the time when each is due and its id, soonest first.
    """

    def __init__(self, actions: Iterable[ReadyAction] = (), now_s: float = 0.0) -> None:
        """Adds the actions; those in backoff at ``now_s`` are kept apart."""
        self.groups: dict[Kind, ReadyGroup] = {}
        self.heads: dict[str, SortedList[Entry]] = {}
        self.signatures = Counter[Digest]()
        self.sequences = Counter[Digest]()
        self.wanted = Counter[Digest]()
        self.backoff: SortedList[tuple[float, Digest, ReadyAction]] = SortedList()
        self._cohorts: dict[Kind, Cohort] = {}
        self._now_s = now_s
        for action in actions:
            self.add(action)

    def __iter__(self) -> Iterator[ReadyAction]:
        """Yields all actions, in no particular order."""
        for group in self.groups.values():
            yield from group
        for _, _, action in self.backoff:
            yield action

    def __len__(self) -> int:
        """The number of actions, in groups and in backoff."""
        return self.signatures.total() + len(self.backoff)

    def add(self, action: ReadyAction) -> None:
        """Adds an action that is not in the index yet."""
        if action.not_before_s > self._now_s:
            self.backoff.add((action.not_before_s, action.action_id, action))
            return
        group = self.groups.get(action.kind) or self._new_group(action)
        entry = (action.rank, action, group)
        queue = group.queues.get(action.tenant)
        if queue is None:
            queue = group.queues[action.tenant] = SortedList()
        self._enter(queue, entry)
        self._change(group, action, 1)

    def remove(self, action: ReadyAction) -> None:
        """Removes an action.

        Raises:
            ValueError: it is not in the index.
        """
        if action.not_before_s > self._now_s:
            self.backoff.remove((action.not_before_s, action.action_id, action))
            return
        group = self.groups.get(action.kind)
        queue = group.queues.get(action.tenant) if group else None
        if group is None or queue is None:
            raise ValueError(f"action {action.action_id} is not in the ready index")
        self._leave(queue, (action.rank, action, group))
        if not queue:
            del group.queues[action.tenant]
        self._change(group, action, -1)

    def release(self, now_s: float) -> None:
        """Ends the backoffs that are due. A clock that goes back does not restart a backoff."""
        self._now_s = max(self._now_s, now_s)
        while self.backoff and self.backoff[0][0] <= self._now_s:
            self.add(self.backoff.pop(0)[2])

    def _new_group(self, action: ReadyAction) -> ReadyGroup:
        name = action.kind[1:]
        cohort = self._cohorts.get(name)
        if cohort is None:
            cohort = self._cohorts[name] = Cohort(name)
        group = self.groups[action.kind] = ReadyGroup(action, cohort)
        return group

    def _enter(self, queue: SortedList[Entry], entry: Entry) -> None:
        tenant = entry[1].tenant
        heads = self.heads.get(tenant)
        if heads is None:
            heads = self.heads[tenant] = SortedList()
        if not queue:
            heads.add(entry)
        elif entry < queue[0]:
            heads.remove(queue[0])
            heads.add(entry)
        queue.add(entry)

    def _leave(self, queue: SortedList[Entry], entry: Entry) -> None:
        action = entry[1]
        if queue[0][0] != action.rank:
            queue.remove(entry)
        else:  # the usual case, since placement takes the first action: no search is needed
            del queue[0]
            heads = self.heads[tenant := action.tenant]
            if heads[0][1] is action:
                del heads[0]
            else:
                heads.remove(entry)
            if queue:
                heads.add(queue[0])
            elif not heads:
                del self.heads[tenant]

    def _change(self, group: ReadyGroup, action: ReadyAction, by: int) -> None:
        """Updates the counts for an added (1) or removed (-1) action and drops empty groups."""
        group.count += by
        group.cohort.change(action.work, by)
        _count(self.signatures, action.signature, by)
        _count(self.sequences, action.signature, by * round(action.work.sequences))
        for digest, size in action.inputs:
            if size > NEGLIGIBLE_BYTES:
                _count(self.wanted, digest, by)
        if not group.count:
            del self.groups[action.kind]
            if not group.cohort.count:
                del self._cohorts[group.cohort.name]


def _count(counts: Counter[_T], key: _T, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]
