"""Standby hosts: hosts that have imported an engine's libraries and loaded nothing yet.

There is one for each preload that work needed within ``IDLE_S``, once the control plane has sent a
prewarm list: such a worker serves many workflows, and another engine of that kind is likely. A new
engine instance takes a standby host, ready or not.

On a worker with devices the next standby host is started at once. On a CPU worker engines compute
on the processors and the memory that standby hosts use. There they start one at a time, and only
while no engine loads and no attempt waits for memory. They reserve memory, and are killed as soon
as an engine instance needs it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_core.protocol.messages import Assignment, PrewarmSpec
from flowmesh_core.worker_agent.instructions import ClearTimer, SetTimer, StartStandby, StopStandby
from flowmesh_core.worker_agent.memory_reservations import MemoryBudget, Reservation
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.ports import EngineFacts, Preload
from flowmesh_core.worker_agent.transitions import StandbyState, check_transition

IDLE_S = 600.0
"""A preload that no work has needed for this long has no standby host."""
TIMER = "standby"
CRASHES_MAX = 3
"""After this many ready hosts have exited by themselves, no other is started for a preload."""


@dataclass(slots=True, eq=False)
class StandbyHost:
    """One standby host."""

    id: int
    reservation: Reservation | None
    state: StandbyState = StandbyState.IMPORTING

    def move(self, state: StandbyState) -> None:
        """Changes the state.

        Raises:
            InvariantError: the table does not allow it.
        """
        check_transition(self.state, state, f"standby host {self.id}")
        self.state = state


class StandbyHosts:
    """Starts standby hosts and gives them to new engine instances.

    Attributes:
        hosts: by the name of their preload.
    """

    def __init__(
        self,
        out: Outbox,
        facts: EngineFacts,
        memory: MemoryBudget,
        *,
        on_cpu: bool,
        number: Callable[[], int],
    ) -> None:
        """Starts none before :meth:`allow`.

        Args:
            out: for instructions.
            facts: what engines import.
            memory: shared with engine instances.
            on_cpu: whether engines compute on the CPU, so that standby hosts take from them.
            number: gives each host its id.
        """
        self._out = out
        self._facts = facts
        self._memory = memory
        self._on_cpu = on_cpu
        self._number = number
        self._allowed = False
        self._requested: dict[str, Preload] = {}
        self._failed: set[str] = set()
        self._crashes: Counter[str] = Counter()
        self.hosts: dict[str, StandbyHost] = {}

    @property
    def reservations(self) -> list[Reservation]:
        """The memory that :meth:`release_memory` would release."""
        return [h.reservation for h in self.hosts.values() if h.reservation is not None]

    def allow(self) -> None:
        """Allows hosts to be started from now on."""
        self._allowed = True

    def request(self, wanted: Assignment | PrewarmSpec) -> None:
        """Notes that work needs an engine: the next one of its kind may use a standby host."""
        if not self._allowed:
            return
        preload = self._facts.preload(wanted)
        if preload is None:
            return
        self._requested.pop(preload.name, None)
        self._requested[preload.name] = preload
        self._out.add(SetTimer((TIMER, preload.name), self._out.now_s + IDLE_S))

    def take(self, wanted: Assignment | PrewarmSpec) -> StandbyHost | None:
        """Removes and returns the host for this; None if there is none."""
        preload = self._facts.preload(wanted)
        if preload is None or preload.name not in self.hosts:
            return None
        return self._remove(preload.name, StandbyState.TAKEN)

    def release_memory(self) -> None:
        """Kills the hosts that reserve memory."""
        for name in [n for n, host in self.hosts.items() if host.reservation is not None]:
            self._stop(name)

    def advance(self, *, busy: bool) -> None:
        """Starts the hosts that may be started now.

        Args:
            busy: whether an engine loads, or an attempt waits for memory to load one.
        """
        if not self._allowed or (self._on_cpu and busy):
            return
        for name in reversed(self._requested):
            if self._on_cpu and self._imports():
                return
            if name not in self.hosts and name not in self._failed:
                self._start(self._requested[name])

    def _imports(self) -> bool:
        return any(host.state is StandbyState.IMPORTING for host in self.hosts.values())

    def ready(self, host_id: int) -> None:
        """Records that a host has imported its libraries; a second report changes nothing."""
        name = self._name(host_id)
        if name is not None and self.hosts[name].state is StandbyState.IMPORTING:
            self.hosts[name].move(StandbyState.READY)

    def exited(self, host_id: int) -> None:
        """Removes a host that is gone; after a failed import or three crashes none replaces it."""
        name = self._name(host_id)
        if name is None:
            return
        if self.hosts[name].state is StandbyState.IMPORTING:
            # A broken library shows in the failure of the attempt that needs its engine.
            self._failed.add(name)
        else:
            self._crashes[name] += 1
            if self._crashes[name] >= CRASHES_MAX:
                self._failed.add(name)
        self._stop(name)

    def expired(self, preload: str) -> None:
        """Stops the host of a preload that no work has needed within ``IDLE_S``."""
        self._requested.pop(preload, None)
        if preload in self.hosts:
            self._stop(preload)

    def close(self) -> None:
        """Kills all hosts; none is started after this."""
        self._allowed = False
        for name in self._requested:
            self._out.add(ClearTimer((TIMER, name)))
        self._requested.clear()
        for name in list(self.hosts):
            self._stop(name)

    def _start(self, preload: Preload) -> None:
        reservation = None
        if self._on_cpu:
            reservation = self._memory.reserve(preload.memory_mib, 0)
            if reservation is None:
                return
        host = StandbyHost(self._number(), reservation)
        self.hosts[preload.name] = host
        self._out.add(StartStandby(host.id, preload.name))

    def _stop(self, name: str) -> None:
        self._out.add(StopStandby(self._remove(name, StandbyState.GONE).id))

    def _remove(self, name: str, state: StandbyState) -> StandbyHost:
        host = self.hosts.pop(name)
        host.move(state)
        if host.reservation is not None:
            self._memory.release(host.reservation)
        return host

    def _name(self, host_id: int) -> str | None:
        return next((n for n, host in self.hosts.items() if host.id == host_id), None)
