"""Who is served next: the tenant that paid least, then priority, slack, critical path, age.

The order is lazy: it walks along the index of ready actions, so that a tick with few free places
looks at the head of each queue only, and a group that has no place left leaves the queues of all
tenants at once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import Entry, ReadyGroup, ReadyIndex
from flowmesh_core.units import Digest


class FairOrder:
    """Ready actions by tenant, least virtual time first (ties by name).

    ``pop`` shows an action; ``skip`` or ``drop`` must follow, or its group and tenant are left out.
    """

    def __init__(
        self,
        index: ReadyIndex,
        groups: Iterable[ReadyGroup],
        virtual_time: dict[str, float],
        weights: Mapping[str, float],
        placed: Collection[Digest] = frozenset(),
    ) -> None:
        """Takes the groups that are in it, the virtual times, moved as served, and who is not."""
        self._virtual_time = virtual_time
        self._weights = weights
        self._placed = placed
        self._left = set(groups)
        self._queues = {tenant: _Queue(heads) for tenant, heads in index.heads.items()}
        self._tenants = [(virtual_time.get(tenant, 0.0), tenant) for tenant in self._queues]
        heapify(self._tenants)

    def pop(self) -> tuple[ReadyAction, ReadyGroup] | None:
        """The next action and its group."""
        while self._tenants and self._left:
            queue = self._queues[self._tenants[0][1]]
            while (shown := queue.next(self._left)) is not None:
                _, action, group = shown
                if action.action_id not in self._placed:
                    return action, group
                queue.advance(1, self._placed)
            heappop(self._tenants)
        return None

    def charge(self, nanousd: int) -> None:
        """Moves the tenant that was served last back by what its action will cost."""
        virtual_time, tenant = self._tenants[0]
        virtual_time += nanousd / self._weights.get(tenant, 1.0)
        self._virtual_time[tenant] = virtual_time
        heapreplace(self._tenants, (virtual_time, tenant))

    def skip(self, count: int = 1) -> int:
        """Passes over up to ``count`` actions of the group and tenant of the one that was shown.

        Returns:
            How many there were.
        """
        return self._queues[self._tenants[0][1]].advance(count, self._placed)

    def drop(self, *groups: ReadyGroup) -> None:
        """Passes over all that is left of groups."""
        self._left.difference_update(groups)


class _Queue:
    """The actions of a tenant, by group and rank."""

    def __init__(self, heads: Iterable[Entry]) -> None:
        """Takes the first action of every group, in order of rank."""
        self._heads = iter(heads)
        self._head = next(self._heads, None)
        self._moved: list[Entry] = []
        self._rest: dict[ReadyGroup, Iterator[Entry]] = {}
        self._shown: Entry | None = None

    def next(self, left: set[ReadyGroup]) -> Entry | None:
        """Takes out the first action of the groups that are left."""
        head, moved = self._head, self._moved
        while head is not None and head[2] not in left:
            head = next(self._heads, None)
        while moved and moved[0][2] not in left:
            heappop(moved)
        if moved and (head is None or moved[0] < head):
            self._head, self._shown = head, heappop(moved)
        else:
            self._head, self._shown = next(self._heads, None), head
        return self._shown

    def advance(self, count: int, placed: Collection[Digest]) -> int:
        """Lets another action of the same group stand for the one that was taken out last."""
        if self._shown is None:
            return 0
        _, action, group = self._shown
        rest = self._rest.get(group)
        if rest is None:
            rest = self._rest[group] = iter(group.queues[action.tenant])
            next(rest)
        passed = 1
        for entry in rest:
            if entry[1].action_id not in placed:
                if passed == count:
                    heappush(self._moved, entry)
                    break
                passed += 1
        return passed
