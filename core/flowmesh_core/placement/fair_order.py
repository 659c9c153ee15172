"""The order in which ready actions are nominated: fair share first.

The tenant that paid least over its weight is next; within a tenant priority decides, then slack,
critical path and age. The order walks lazily along the index of ready actions, so that a cycle with
few free slots reads only the head of each queue.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import Entry, ReadyGroup, ReadyIndex
from flowmesh_core.units import Digest


class FairOrder:
    """Ready actions by tenant, least virtual time first (ties by name).

    ``pop`` returns an action; ``skip`` or ``drop`` must follow, or its group is left out for its
    tenant.

    Args:
        index: the ready actions; only read.
        groups: those that take part.
        virtual_time: by tenant; changed by ``charge``.
        weights: by tenant, where not 1.
        placed: actions to pass over, since they have a slot already.
    """

    def __init__(
        self,
        index: ReadyIndex,
        groups: Iterable[ReadyGroup],
        virtual_time: dict[str, float],
        weights: Mapping[str, float],
        placed: Collection[Digest] = frozenset(),
    ) -> None:
        self._virtual_time = virtual_time
        self._weights = weights
        self._placed = placed
        self._groups = set(groups)
        self._queues = {tenant: _Queue(heads) for tenant, heads in index.heads.items()}
        self._tenants = [(virtual_time.get(tenant, 0.0), tenant) for tenant in self._queues]
        heapify(self._tenants)

    def pop(self) -> tuple[ReadyAction, ReadyGroup] | None:
        """Returns the next action and its group; None when no group is left."""
        while self._tenants and self._groups:
            queue = self._queues[self._tenants[0][1]]
            while (shown := queue.next(self._groups)) is not None:
                _, action, group = shown
                if action.action_id not in self._placed:
                    return action, group
                queue.advance(1, self._placed)
            heappop(self._tenants)
        return None

    def charge(self, nanousd: int) -> None:
        """Moves the tenant of the last popped action back by what that action will cost."""
        virtual_time, tenant = self._tenants[0]
        virtual_time += nanousd / self._weights.get(tenant, 1.0)
        self._virtual_time[tenant] = virtual_time
        heapreplace(self._tenants, (virtual_time, tenant))

    def skip(self, count: int = 1) -> int:
        """Passes over up to ``count`` actions, beginning with the last popped one, of its queue.

        Returns:
            How many there were.
        """
        return self._queues[self._tenants[0][1]].advance(count, self._placed)

    def drop(self, *groups: ReadyGroup) -> None:
        """Removes groups from the order, for all tenants."""
        # Only the set shrinks. A queue discards an entry of a dropped group when it reaches it, so
        # a drop costs the same however many tenants and actions the group has. To take the group
        # out of every tenant's queue at once would cost tenants times groups, and most of those
        # entries are never reached, because the order ends when no group is left.
        self._groups.difference_update(groups)


class _Queue:
    """The actions of one tenant, merged from its groups in order of rank.

    A tenant may have thousands of ready actions in hundreds of groups, of which a cycle places few.
    To collect and sort them all in each cycle took a quarter of its time (ADR 13). So the index has
    the heads of the groups sorted, and the queue walks along them. Only a group whose head was
    taken has a new head, and only those go into a heap (``_moved``), which is merged with the walk.
    ``test_within_a_tenant_priority_then_slack_then_path_then_age_decide`` shows the order.
    """

    def __init__(self, heads: Iterable[Entry]) -> None:
        self._heads = iter(heads)
        self._head = next(self._heads, None)
        self._moved: list[Entry] = []
        self._remaining: dict[ReadyGroup, Iterator[Entry]] = {}
        self._shown: Entry | None = None

    def next(self, groups: set[ReadyGroup]) -> Entry | None:
        """Takes out the first action that belongs to one of the groups."""
        head, moved = self._head, self._moved
        while head is not None and head[2] not in groups:
            head = next(self._heads, None)
        while moved and moved[0][2] not in groups:
            heappop(moved)
        if moved and (head is None or moved[0] < head):
            self._head, self._shown = head, heappop(moved)
        else:
            self._head, self._shown = next(self._heads, None), head
        return self._shown

    def advance(self, count: int, placed: Collection[Digest]) -> int:
        """Puts the next action of the same group in place of the one that was taken out last."""
        if self._shown is None:
            return 0
        _, action, group = self._shown
        remaining = self._remaining.get(group)
        if remaining is None:
            remaining = self._remaining[group] = iter(group.queues[action.tenant])
            next(remaining)
        passed = 1
        for entry in remaining:
            if entry[1].action_id not in placed:
                if passed == count:
                    heappush(self._moved, entry)
                    break
                passed += 1
        return passed
