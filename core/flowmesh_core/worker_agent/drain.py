"""Drains a worker: takes nothing new, ends its attempts, waits for acknowledgements, leaves.

Attempts that have not begun are handed back at once. A running one that is predicted to end within
half of the grace period may do so; the others write a checkpoint at once, and whatever still runs
after that half writes one then. The second half is for storing them. Attempts that are left at its
end are handed back. Replicas of services take no new calls; those that are in them have half of the
grace period.
"""

from flowmesh_core.worker_agent.attempts import Attempts
from flowmesh_core.worker_agent.instructions import ClearTimer, Leave, SetTimer
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.prewarm import Prewarmer
from flowmesh_core.worker_agent.replicas import Replicas
from flowmesh_core.worker_agent.reports import Reports
from flowmesh_core.worker_agent.standby import StandbyHosts
from flowmesh_core.worker_agent.state import AgentState

ACKNOWLEDGED_WITHIN_S = 5.0
TIMER = "drain"
_HALF, _END, _LEAVE = (TIMER, "half"), (TIMER, "end"), (TIMER, "leave")


class Drain:
    """Drains the worker; a drain cannot be undone."""

    def __init__(
        self,
        state: AgentState,
        out: Outbox,
        attempts: Attempts,
        prewarmer: Prewarmer,
        replicas: Replicas,
        standby: StandbyHosts,
        reports: Reports,
        *,
        grace_s: float,
    ) -> None:
        self._state = state
        self._out = out
        self._attempts = attempts
        self._prewarmer = prewarmer
        self._replicas = replicas
        self._standby = standby
        self._reports = reports
        self._grace_s = grace_s
        self._empty = False
        self._left = False

    def begin(self) -> None:
        """Begins the drain; does nothing if it has begun."""
        if self._reports.draining:
            return
        self._reports.drain()
        self._prewarmer.replace(())  # fetching would compete with storing
        self._standby.close()
        self._attempts.end_drained(running=False)
        half_s = self._grace_s / 2
        if not self._replicas.is_empty:
            self._replicas.replace((), half_s)
        self._attempts.request_checkpoints(half_s)
        self._out.add(SetTimer(_HALF, self._out.now_s + half_s))

    def hurry(self) -> None:
        """Hands all attempts back at once."""
        self._attempts.end_drained(running=True)

    def timer_fired(self, name: str) -> None:
        """Handles the end of a part of the grace period, or of the wait for acknowledgements."""
        if (TIMER, name) == _HALF:
            self._attempts.request_checkpoints(0.0)
            self._out.add(SetTimer(_END, self._out.now_s + self._grace_s / 2))
        elif (TIMER, name) == _END:
            self.hurry()
        else:
            self._leave()

    def advance(self) -> None:
        """Leaves once no attempt and no call is left and all ends are acknowledged.

        It waits at most 5 s for the latter.
        """
        if not self._reports.draining or self._left or self._state.attempts:
            return
        if not self._replicas.is_empty:
            return
        if not self._empty:
            self._empty = True
            self._out.add(ClearTimer(_HALF))
            self._out.add(ClearTimer(_END))
            self._out.add(SetTimer(_LEAVE, self._out.now_s + ACKNOWLEDGED_WITHIN_S))
        if not self._reports.ended:
            self._leave()

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._out.add(ClearTimer(_LEAVE))
            self._out.add(Leave())
