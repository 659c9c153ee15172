"""Who is served next: the tenant that paid least, then priority, slack, critical path, age.

The order is lazy: a tick with few free places looks at the head of each queue only, and a group
that has no place left leaves the queues of all tenants at once.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heapreplace

from flowmesh_core.fleet.snapshot import ReadyAction
from flowmesh_core.scheduler.groups import Group, OrderKey

Head = tuple[OrderKey, int]


class FairOrder:
    """Ready actions by tenant, least virtual time first (ties by name)."""

    def __init__(
        self,
        groups: Iterable[Group],
        virtual_time: Mapping[str, float],
        weights: Mapping[str, float],
    ) -> None:
        """Takes the groups to serve; their queues are emptied as they are served."""
        self.groups = list(groups)
        self._weights = weights
        self._dropped: set[int] = set()
        self._heads: dict[str, list[Head]] = {}
        for number, group in enumerate(self.groups):
            for tenant, queue in group.queues.items():
                heapify(queue)
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
                _, number = heads[0]
                if number in self._dropped:
                    heappop(heads)
                    continue
                queue = self.groups[number].queues[tenant]
                if not queue:
                    heappop(heads)
                    continue
                if heads[0][0] is not queue[0][0]:
                    heapreplace(heads, (queue[0][0], number))
                    continue
                _, action = heappop(queue)
                if queue:
                    heapreplace(heads, (queue[0][0], number))
                else:
                    heappop(heads)
                return action, number
            heappop(self._tenants)
        return None

    def charge(self, nanousd: int) -> None:
        """Moves the tenant that was served last back by what its action will cost."""
        virtual_time, tenant = self._tenants[0]
        paid = nanousd / self._weights.get(tenant, 1.0)
        heapreplace(self._tenants, (virtual_time + paid, tenant))

    def skip(self, number: int, count: float) -> int:
        """Takes up to ``count`` further actions of a group from the tenant that was served last."""
        queue = self.groups[number].queues[self._tenants[0][1]]
        if count >= len(queue):
            skipped = len(queue)
            queue.clear()
            return skipped
        for _ in range(int(count)):
            heappop(queue)
        return int(count)

    def drop(self, number: int) -> int:
        """Takes a group out of all queues and says how many actions it still held."""
        self._dropped.add(number)
        return sum(len(queue) for queue in self.groups[number].queues.values())
