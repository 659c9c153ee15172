"""The calls of one replica: how many run, how many wait, and which is next.

A hub has one for each engine instance. It never waits to fill a batch: a call begins at once where
fewer than ``calls_max`` run. The others wait by deadline, the earliest first, and at most twice
``calls_max`` of them. The tenant with most calls leaves a place free for each other tenant that has
called recently, so that the next call of that one waits without another being refused for it. Where
no place is left all the same, a tenant with fewer calls takes that of a call that waits, of the
tenant with most: routers do not know what other routers have sent.
"""

from collections import Counter, deque
from enum import StrEnum

QUEUED_PER_RUNNING = 2
RECENT_CALLS = 100
"""So many calls, the last that were admitted, show which tenants call."""


class CallAdmission(StrEnum):
    """What becomes of a new call."""

    RUNS = "runs"
    WAITS = "waits"
    FULL = "full"


class CallQueue:
    """The running and waiting calls of one engine instance.

    Attributes:
        calls_max: calls that run at once.
        running: their ids.
    """

    def __init__(self, calls_max: int) -> None:
        self.calls_max = max(1, calls_max)
        self.running: set[str] = set()
        self._waiting: dict[str, float] = {}
        self._tenants: dict[str, str] = {}
        self._recent: deque[str] = deque(maxlen=RECENT_CALLS)

    @property
    def queued(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    @property
    def queued_max(self) -> int:
        """Calls that may wait."""
        return QUEUED_PER_RUNNING * self.calls_max

    def add(self, call_id: str, deadline_s: float, tenant: str = "") -> CallAdmission:
        """Admits a call of a tenant to run or to wait, or refuses it."""
        if len(self.running) < self.calls_max and not self._waiting:
            self.running.add(call_id)
            self._admitted(call_id, tenant)
            return CallAdmission.RUNS
        if len(self._waiting) >= self.queued_max - self._left_free_by(tenant):
            return CallAdmission.FULL
        self._waiting[call_id] = deadline_s
        self._admitted(call_id, tenant)
        return CallAdmission.WAITS

    def _admitted(self, call_id: str, tenant: str) -> None:
        self._tenants[call_id] = tenant
        self._recent.append(tenant)

    def _left_free_by(self, tenant: str) -> int:
        """Places that a tenant leaves to others: none unless it has most calls, at most half."""
        counts = Counter(self._tenants.values())
        own = counts[tenant]
        if own < max(counts.values(), default=0):
            return 0
        others = sum(counts[other] < own for other in set(self._recent))
        return min(others, self.queued_max // 2)

    def displaced_by(self, tenant: str) -> str | None:
        """Returns the waiting call whose place a call of this tenant takes; None if there is none.

        It is the last one of the tenant with the most calls, where that has two more at least.
        """
        counts = Counter(self._tenants.values())
        waiting = [c for c in self._waiting if counts[self._tenants[c]] > counts[tenant] + 1]
        if not waiting:
            return None
        most = max(counts[self._tenants[c]] for c in waiting)
        return next(c for c in reversed(waiting) if counts[self._tenants[c]] == most)

    def remove(self, call_id: str) -> bool:
        """Removes a call that has ended or is not wanted; returns whether it was running."""
        self._waiting.pop(call_id, None)
        self._tenants.pop(call_id, None)
        if call_id not in self.running:
            return False
        self.running.discard(call_id)
        return True

    def take(self) -> str | None:
        """Moves the waiting call with the earliest deadline to the running ones, if one may run."""
        if not self._waiting or len(self.running) >= self.calls_max:
            return None
        call_id = min(self._waiting, key=self._waiting.__getitem__)
        del self._waiting[call_id]
        self.running.add(call_id)
        return call_id
