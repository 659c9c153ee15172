"""A queue that serves tenants in turn, however many items each of them has.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): every tenant has a virtual time that
grows by one over its weight with each item, and the tenant with the least is next. A tenant that
was idle continues at the current virtual time, so it does not accumulate turns. Used for the store
tasks of the control plane (``task_pool``), with the weights of placement.
"""

from collections import deque
from collections.abc import Callable, Collection
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

T = TypeVar("T")


class _Line(Generic[T]):
    """One tenant's items.

    Attributes:
        turn: the virtual time of its next item.
        ready: whether the heap has it.
    """

    __slots__ = ("ready", "tenant", "turn", "waiting")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.waiting: deque[T] = deque()
        self.turn = 0.0
        self.ready = False


class FairQueue(Generic[T]):
    """Items of several tenants: each tenant's in order of arrival, the tenants in turn."""

    def __init__(self, *, weight: Callable[[str], float]) -> None:
        """Starts empty.

        Args:
            weight: of a tenant; one of weight 2 gets two turns for each turn of one of weight 1.
        """
        self._weight = weight
        self._lines: dict[str, _Line[T]] = {}
        self._heap: list[tuple[float, int, _Line[T]]] = []
        self._entered = 0
        self._now = 0.0
        self._waiting = 0
        self._in_service = 0

    def __len__(self) -> int:
        """Returns the number of waiting items."""
        return self._waiting

    def soonest(self, tenants: Collection[str]) -> str:
        """Returns the tenant as whose item a new one would be served first."""
        return min(tenants, key=self._served_at)

    def _served_at(self, tenant: str) -> float:
        line = self._lines.get(tenant)
        if line is None:
            return self._now
        return max(line.turn, self._now) + len(line.waiting) * self._turn_of(tenant)

    def _turn_of(self, tenant: str) -> float:
        """Returns the virtual time that an item of this tenant takes."""
        weight = self._weight(tenant)
        turn = 1.0 / weight if weight else 0.0
        if not 0.0 < turn < float("inf"):
            raise ValueError(f"weight of tenant {tenant!r} is {weight}: expected a positive number")
        return turn

    def push(self, tenant: str, item: T) -> None:
        """Adds an item behind the others of its tenant.

        Raises:
            ValueError: the tenant's weight is not a positive number.
        """
        line = self._lines.get(tenant)
        if line is None:
            self._turn_of(tenant)
            line = self._lines[tenant] = _Line(tenant)
        line.waiting.append(item)
        self._waiting += 1
        self._offer(line)

    def pop(self) -> tuple[str, T] | None:
        """Removes and returns the next tenant and item; None where there is none.

        The item is in service until :meth:`done`.

        Raises:
            ValueError: the tenant's weight is no longer a positive number.
        """
        heap = self._heap
        if not heap:
            return None
        self._now, _, line = heap[0]
        line.turn = self._now + self._turn_of(line.tenant)
        item = line.waiting.popleft()
        self._waiting -= 1
        self._in_service += 1
        if line.waiting:
            self._entered += 1
            heapreplace(heap, (line.turn, self._entered, line))
        else:
            heappop(heap)
            line.ready = False
        return line.tenant, item

    def done(self) -> None:
        """Ends the service of an item.

        When none waits and none is in service, the virtual times start again at zero.
        """
        self._in_service -= 1
        if not self._waiting and not self._in_service:
            self._lines.clear()
            self._now = 0.0

    def _offer(self, line: _Line[T]) -> None:
        """Puts a tenant into the heap if it has an item and is not there."""
        if line.ready or not line.waiting:
            return
        line.ready = True
        line.turn = max(line.turn, self._now)
        self._entered += 1
        heappush(self._heap, (line.turn, self._entered, line))
