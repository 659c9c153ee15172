"""The order in which ready actions are nominated: fair share first.

The next tenant is the one that has paid least relative to its weight. Within a tenant, priority
decides, then slack, critical path and age. The index of ready actions is read lazily, so a cycle
with few free slots reads only the head of each queue.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import Entry, ReadyGroup, ReadyIndex
from flowmesh_core.units import Digest


class FairOrder:
    """Ready actions by tenant, least virtual time first (ties by name).

    ``pop`` returns an action. The caller must then call ``skip`` or ``drop``; otherwise the rest of
    the group is lost for this tenant.

    Args:
        index: the ready actions; only read.
        groups: the groups that take part.
        virtual_time: the virtual time of each tenant; ``charge`` changes it.
        weights: the weights of tenants whose weight is not 1.
        placed: actions to pass over because they already have a slot.
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
        """Returns the next action and its group; None if no action is left."""
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
        """Adds an action's cost, over the weight, to the virtual time of the last popped tenant."""
        virtual_time, tenant = self._tenants[0]
        virtual_time += nanousd / self._weights.get(tenant, 1.0)
        self._virtual_time[tenant] = virtual_time
        heapreplace(self._tenants, (virtual_time, tenant))

    def skip(self, count: int = 1) -> int:
        """Passes over up to ``count`` actions, beginning with the last popped one.

        All of them are of its tenant and its group.

        Returns:
            The number of actions passed over.
        """
        return self._queues[self._tenants[0][1]].advance(count, self._placed)

    def drop(self, *groups: ReadyGroup) -> None:
        """Removes groups from the order, for all tenants."""
        # Only the set shrinks. A queue discards an entry of a dropped group on reaching it, so a
        # drop costs the same however many tenants and actions the group has. Removing the group
        # from every tenant's queue at once would cost tenants times groups, mostly for entries that
        # are never reached, because the order ends when no group is left.
        self._groups.difference_update(groups)


class _Queue:
    """The actions of one tenant, merged from its groups in order of rank.

    A tenant may have thousands of ready actions in hundreds of groups, but a cycle places only a
    few of them. Collecting and sorting all of them took a quarter of each cycle's time (ADR 13). So
    the index keeps the heads of the groups sorted, and the queue walks along these heads. A group
    gets a new head only when its head was taken. The new heads go into a heap (``_moved``), which
    is merged with the walk.
    ``test_within_a_tenant_priority_then_slack_then_path_then_age_decide`` shows the order.
    """

    def __init__(self, heads: Iterable[Entry]) -> None:
        self._heads = iter(heads)
        self._head = next(self._heads, None)
        self._moved: list[Entry] = []
        self._remaining: dict[ReadyGroup, Iterator[Entry]] = {}
        self._shown: Entry | None = None

    def next(self, groups: set[ReadyGroup]) -> Entry | None:
        """Removes and returns the first action that belongs to one of the groups."""
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
        """Passes over up to ``count`` actions of a group, and puts its next action in the queue.

        The group is that of the action that ``next`` returned last, and that action is the first to
        be passed over. Actions in ``placed`` are not counted. Returns the number passed over.
        """
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
