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
    """Ready actions by tenant, least virtual time first (ties by name).

    ``pop`` shows an action; ``take``, ``skip`` or ``drop`` must follow, or it is shown again.
    """

    def __init__(
        self, groups: Iterable[Group], virtual_time: dict[str, float], weights: Mapping[str, float]
    ) -> None:
        """Takes the groups to serve, and the virtual times, which it moves on."""
        self.groups = list(groups)
        self._virtual_time = virtual_time
        self._weights = weights
        self._dropped: set[int] = set()
        self._heads: dict[str, list[Head]] = {}
        for number, group in enumerate(self.groups):
            for tenant, queue in group.queues.items():
                if queue:
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
                key, number = heads[0]
                if number in self._dropped:
                    heappop(heads)
                    continue
                queue = self.groups[number].queues[tenant]
                if queue and key is queue[0][0]:
                    return queue[0][1], number
                self._refresh(heads, number, tenant)
            heappop(self._tenants)
        return None

    def take(self, number: int) -> None:
        """Takes the action that was shown out of its queue."""
        tenant = self._tenants[0][1]
        heappop(self.groups[number].queues[tenant])
        self._refresh(self._heads[tenant], number, tenant)

    def charge(self, nanousd: int) -> None:
        """Moves the tenant that was served last back by what its action will cost."""
        virtual_time, tenant = self._tenants[0]
        virtual_time += nanousd / self._weights.get(tenant, 1.0)
        self._virtual_time[tenant] = virtual_time
        heapreplace(self._tenants, (virtual_time, tenant))

    def skip(self, number: int, count: float) -> int:
        """Sets aside up to ``count`` actions of a group, of the tenant whose action was shown.

        They keep waiting, and are not shown again in this order.
        """
        group, tenant = self.groups[number], self._tenants[0][1]
        queue = group.queues[tenant]
        skipped = min(len(queue), max(1, int(min(count, len(queue)))))
        if skipped == len(queue):
            group.waiting.extend(queue)
            queue.clear()
        else:
            group.waiting.extend(heappop(queue) for _ in range(skipped))
        self._refresh(self._heads[tenant], number, tenant)
        return skipped

    def drop(self, number: int) -> None:
        """Takes a group out of the order; its queues keep what they hold."""
        self._dropped.add(number)

    def _refresh(self, heads: list[Head], number: int, tenant: str) -> None:
        """Puts the first head of a tenant where the rest of its group's queue belongs."""
        queue = self.groups[number].queues[tenant]
        if queue:
            heapreplace(heads, (queue[0][0], number))
        else:
            heappop(heads)
