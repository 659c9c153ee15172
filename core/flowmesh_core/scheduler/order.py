"""Who is served next: the tenant that paid least, then priority, slack, critical path, age.

The order is lazy: a tick with few free places looks at the head of each queue only, and a group
that has no place left leaves the queues of all tenants at once.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from flowmesh_core.fleet.snapshot import Rank, ReadyAction
from flowmesh_core.scheduler.groups import Group

Queue = list[tuple[Rank, int, ReadyAction]]


class FairOrder:
    """Ready actions by tenant, least virtual time first (ties by name).

    ``pop`` shows an action; ``take``, ``skip`` or ``drop`` must follow, or it is shown again.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        virtual_time: dict[str, float],
        weights: Mapping[str, float],
    ) -> None:
        """Takes the actions that are left of the groups, and the virtual times, moved as served."""
        self._virtual_time = virtual_time
        self._weights = weights
        self._dropped: set[int] = set()
        self._queues = [_queues(group) for group in groups]
        self._heads: dict[str, list[tuple[Rank, int]]] = {}
        for number, queues in enumerate(self._queues):
            for tenant, queue in queues.items():
                self._heads.setdefault(tenant, []).append((queue[0][0], number))
        for heads in self._heads.values():
            heapify(heads)
        self._tenants = [(virtual_time.get(t, 0.0), t) for t in self._heads]
        heapify(self._tenants)

    def pop(self) -> tuple[ReadyAction, int] | None:
        """The next action and the number of its group."""
        while self._tenants:
            tenant = self._tenants[0][1]
            heads = self._heads[tenant]
            while heads:
                number = heads[0][1]
                if number not in self._dropped:
                    return self._queues[number][tenant][0][2], number
                heappop(heads)
            heappop(self._tenants)
        return None

    def take(self, number: int) -> None:
        """Takes the action that was shown out of its queue."""
        self.skip(number, 1)

    def charge(self, nanousd: int) -> None:
        """Moves the tenant that was served last back by what its action will cost."""
        virtual_time, tenant = self._tenants[0]
        virtual_time += nanousd / self._weights.get(tenant, 1.0)
        self._virtual_time[tenant] = virtual_time
        heapreplace(self._tenants, (virtual_time, tenant))

    def skip(self, number: int, count: int) -> int:
        """Passes over up to ``count`` actions of a group, of the tenant whose action was shown."""
        tenant = self._tenants[0][1]
        queue = self._queues[number][tenant]
        if count >= len(queue):
            heappop(self._heads[tenant])
            return len(queue)
        for _ in range(count):
            heappop(queue)
        heapreplace(self._heads[tenant], (queue[0][0], number))
        return count

    def drop(self, number: int) -> None:
        """Passes over all that is left of a group."""
        self._dropped.add(number)


def _queues(group: Group) -> dict[str, Queue]:
    """The actions of a group by tenant, each a heap."""
    found: dict[str, Queue] = {}
    for number, action in enumerate(group.left):
        entry = (action.rank, number, action)
        queue = found.get(action.tenant)
        if queue is None:
            found[action.tenant] = [entry]
        else:
            queue.append(entry)
    for queue in found.values():
        heapify(queue)
    return found
