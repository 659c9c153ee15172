"""The calls of one replica: how many run, how many wait, and which is next.

A hub has one for each engine instance. It never waits to fill a batch: a call begins at once where
fewer than ``calls_max`` run. The others wait by deadline, the earliest first, and at most twice
``calls_max`` of them. Half as many more places are for tenants that have fewer calls than the one
with most, so that the next call of such a tenant waits, and no other call is refused for it after
it has waited. Where these are taken too, it takes the place of a call of the tenant with most:
routers do not know what other routers have sent.
"""

from collections import Counter
from enum import StrEnum

QUEUED_PER_RUNNING = 2
_MORE_OF_OTHERS = 0.5
"""Further places, as a share of the others, for tenants that do not have most calls."""


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

    @property
    def queued(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    @property
    def queued_max(self) -> int:
        """Calls that may wait, without the further places of tenants with fewer calls."""
        return QUEUED_PER_RUNNING * self.calls_max

    def add(self, call_id: str, deadline_s: float, tenant: str = "") -> CallAdmission:
        """Admits a call of a tenant to run or to wait, or refuses it."""
        if len(self.running) < self.calls_max and not self._waiting:
            self.running.add(call_id)
            self._tenants[call_id] = tenant
            return CallAdmission.RUNS
        if len(self._waiting) >= self._places_of(tenant):
            return CallAdmission.FULL
        self._waiting[call_id] = deadline_s
        self._tenants[call_id] = tenant
        return CallAdmission.WAITS

    def _places_of(self, tenant: str) -> int:
        counts = Counter(self._tenants.values())
        has_most = counts[tenant] >= max(counts.values(), default=0)
        return int(self.queued_max * (1.0 if has_most else 1.0 + _MORE_OF_OTHERS))

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
