"""The hub of a worker: one process that takes calls from routers, while there are replicas.

It is started with the first replica and stopped after the last one. A hub that exits is started
again after 1, 2, 4 and at most 60 s.
"""

from flowmesh_core.protocol.messages import RouterAddress
from flowmesh_core.worker_agent.instructions import ClearTimer, SetTimer, StartHub, StopHub
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.transitions import HubState, check_transition

RETRY_MAX_S = 60.0
TIMER = "hub"
_RETRY = (TIMER, "retry")


class Hub:
    """Starts, restarts and stops the hub.

    Attributes:
        number: of the hub that was started last; 0 before the first.
        reason: why the last one exited; empty before, and once the next one is ready.
    """

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._routers: tuple[RouterAddress, ...] = ()
        self._failures = 0
        self.state = HubState.STOPPED
        self.number = 0
        self.reason = ""

    @property
    def is_ready(self) -> bool:
        """Whether it takes replicas."""
        return self.state is HubState.READY

    def connect_to(self, routers: tuple[RouterAddress, ...]) -> None:
        """Sets the routers that it connects to, also of one that runs."""
        if routers != self._routers:
            self._routers = routers
            if self.state in (HubState.STARTING, HubState.READY):
                self._out.add(StartHub(self.number, routers))

    def need(self, *, needed: bool) -> None:
        """Starts it if it is needed and stopped, stops it if it is not needed any more."""
        if needed and self.state is HubState.STOPPED:
            self._start()
        elif not needed and self.state is not HubState.STOPPED:
            if self.state is HubState.FAILED:
                self._out.add(ClearTimer(_RETRY))
            else:
                self._out.add(StopHub(self.number))
            self._failures, self.reason = 0, ""
            self._move(HubState.STOPPED)

    def ready(self, hub_id: int) -> None:
        """Records that it takes replicas; does nothing for one that was stopped."""
        if hub_id == self.number and self.state is HubState.STARTING:
            self._failures, self.reason = 0, ""
            self._move(HubState.READY)

    def exited(self, hub_id: int, reason: str) -> bool:
        """Has it started again later; returns False for one that was stopped."""
        if hub_id != self.number or self.state not in (HubState.STARTING, HubState.READY):
            return False
        self._move(HubState.FAILED)
        self.reason = reason
        delay_s = min(RETRY_MAX_S, 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._out.add(SetTimer(_RETRY, self._out.now_s + delay_s))
        return True

    def retry(self, _timer: str) -> None:
        """Starts it again, if it has exited."""
        if self.state is HubState.FAILED:
            self._start()

    def _start(self) -> None:
        self.number += 1
        self._move(HubState.STARTING)
        self._out.add(StartHub(self.number, self._routers))

    def _move(self, state: HubState) -> None:
        check_transition(self.state, state, f"hub {self.number}")
        self.state = state
