"""The calls of one replica: how many run, how many wait, and which is next.

A hub has one for each engine instance. It never waits to fill a batch: a call begins at once where
fewer than ``calls_max`` run. The others wait by deadline, the earliest first, and at most twice
``calls_max`` of them. Half as many more places are for tenants that have fewer calls than the one
with most, so that the next call of such a tenant waits, and no other call is refused for it after
it has waited. Where these are taken too, it takes the place of a call of the tenant with most:
routers do not know what other routers have sent.

Priorities order the calls of one tenant at one service, and only them. Each waiting call has a
turn, by its deadline. When a turn comes, it is the turn of the tenant at the service: its call of
the highest priority begins, and the call that is passed over has that call's later turn. So the
calls of others begin, and are refused, as they would without priorities.
"""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

QUEUED_PER_RUNNING = 2
_MORE_OF_OTHERS = 0.5
"""Further places, as a share of the others, for tenants that do not have most calls."""


class CallAdmission(StrEnum):
    """What becomes of a new call."""

    RUNS = "runs"
    WAITS = "waits"
    FULL = "full"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call that waits.

    Attributes:
        group: its tenant and service.
        order: among the calls of its group: by priority, deadline and arrival.
        turn: its place among the calls of all groups: a deadline, and a number of arrival.
    """

    group: tuple[str, str]
    order: tuple[int, float, int]
    turn: tuple[float, int]


class CallQueue:
    """The running and waiting calls of one engine instance.

    Attributes:
        calls_max: calls that run at once.
        running: their ids.
    """

    def __init__(self, calls_max: int) -> None:
        self.calls_max = max(1, calls_max)
        self.running: set[str] = set()
        self._waiting: dict[str, _Waiting] = {}
        self._tenants: dict[str, str] = {}
        self._added = 0

    @property
    def queued(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    @property
    def queued_max(self) -> int:
        """Calls that may wait, without the further places of tenants with fewer calls."""
        return QUEUED_PER_RUNNING * self.calls_max

    def add(
        self,
        call_id: str,
        deadline_s: float,
        tenant: str = "",
        service: str = "",
        priority: int = 0,
    ) -> CallAdmission:
        """Admits a call of a tenant to run or to wait, or refuses it.

        Args:
            call_id: unique in the queue.
            deadline_s: when it is late.
            tenant: who sent it.
            service: that it is for.
            priority: among the calls of this tenant at this service; higher first.
        """
        if len(self.running) < self.calls_max and not self._waiting:
            self.running.add(call_id)
            self._tenants[call_id] = tenant
            return CallAdmission.RUNS
        if len(self._waiting) >= self._places_of(tenant):
            return CallAdmission.FULL
        self._wait(call_id, deadline_s, (tenant, service), priority)
        return CallAdmission.WAITS

    def _wait(
        self, call_id: str, deadline_s: float, group: tuple[str, str], priority: int
    ) -> _Waiting:
        self._added += 1
        order, turn = (-priority, deadline_s, self._added), (deadline_s, self._added)
        added = self._waiting[call_id] = _Waiting(group, order, turn)
        self._tenants[call_id] = group[0]
        return added

    def _places_of(self, tenant: str) -> int:
        counts = Counter(self._tenants.values())
        has_most = counts[tenant] >= max(counts.values(), default=0)
        return int(self.queued_max * (1.0 if has_most else 1.0 + _MORE_OF_OTHERS))

    def displaced_by(self, tenant: str, service: str = "", priority: int = 0) -> str | None:
        """Returns the waiting call whose place a refused call takes; None if there is none.

        It is one of the tenant with the most calls, where that has two more at least. Else it is
        one of lower priority of the same tenant at the same service.
        """
        counts = Counter(self._tenants.values())
        waiting = [c for c in self._waiting if counts[self._tenants[c]] > counts[tenant] + 1]
        if waiting:
            most = max(counts[self._tenants[c]] for c in waiting)
            of_most = (self._waiting[c] for c in waiting if counts[self._tenants[c]] == most)
            return self._last_of(max(of_most, key=_number_of_turn).group)
        last = self._last_of((tenant, service))
        return last if last is not None and -self._waiting[last].order[0] < priority else None

    def _last_of(self, group: tuple[str, str]) -> str | None:
        """Returns the waiting call of a group with the lowest priority, the one that came last."""
        calls = [c for c, one in self._waiting.items() if one.group == group]
        return max(calls, key=lambda c: self._waiting[c].order[::2], default=None)

    def replace(
        self,
        displaced: str,
        call_id: str,
        deadline_s: float,
        tenant: str = "",
        service: str = "",
        priority: int = 0,
    ) -> None:
        """Has a call wait in the place of another; see :meth:`displaced_by` and :meth:`add`.

        One of the same tenant at the same service gets its turn. Else the newest turn of the
        other's tenant and service goes.
        """
        before = self._waiting[displaced]
        self.remove(displaced)
        added = self._wait(call_id, deadline_s, (tenant, service), priority)
        if added.group == before.group:
            added.turn = before.turn
            return
        own = [one for one in self._waiting.values() if one.group == before.group]
        newest = max([before, *own], key=_number_of_turn)
        newest.turn = before.turn

    def remove(self, call_id: str) -> bool:
        """Removes a call that has ended or is not wanted; returns whether it was running."""
        self._waiting.pop(call_id, None)
        self._tenants.pop(call_id, None)
        if call_id not in self.running:
            return False
        self.running.discard(call_id)
        return True

    def take(self) -> str | None:
        """Moves the next waiting call to the running ones, if one may run."""
        if not self._waiting or len(self.running) >= self.calls_max:
            return None
        first = min(self._waiting.values(), key=lambda one: one.turn)
        own = [c for c, one in self._waiting.items() if one.group == first.group]
        call_id = min(own, key=lambda c: self._waiting[c].order)
        first.turn = self._waiting.pop(call_id).turn
        self.running.add(call_id)
        return call_id


def _number_of_turn(one: _Waiting) -> int:
    return one.turn[1]
