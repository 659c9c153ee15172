"""Hosts that have imported an engine's libraries before it is known what they will load.

One is kept for every preload that work asked for within the last minutes, once the control plane
lists engines to prewarm: such a worker serves many workflows, and the next engine of a kind is
likely. One is started at a time, and only while no engine loads or waits to, which needs processors
and memory more. A new engine instance takes a standby host, finished or not, and the next one is
started once that engine has loaded. On a CPU a standby host reserves memory, and is killed as soon
as an engine instance needs that.
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
"""A preload that no work has asked for in this time gets no standby host any more."""
TIMER = "standby"
CRASHES_MAX = 3
"""A preload whose ready hosts have exited by themselves this often gets none any more."""


@dataclass(slots=True, eq=False)
class StandbyHost:
    """One of them."""

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
    """Keeps them, and gives them to new engine instances.

    Attributes:
        hosts: by the name of their preload.
    """

    def __init__(
        self,
        out: Outbox,
        facts: EngineFacts,
        memory: MemoryBudget,
        *,
        reserves: bool,
        number: Callable[[], int],
    ) -> None:
        """Keeps none before :meth:`allow`.

        Args:
            out: for instructions.
            facts: what engines import.
            memory: what instances reserve too.
            reserves: whether standby hosts use the memory that engines reserve.
            number: gives each host its id.
        """
        self._out = out
        self._facts = facts
        self._memory = memory
        self._reserves = reserves
        self._number = number
        self._allowed = False
        self._requested: dict[str, Preload] = {}
        self._failed: set[str] = set()
        self._crashes: Counter[str] = Counter()
        self.hosts: dict[str, StandbyHost] = {}

    @property
    def reservations(self) -> list[Reservation]:
        """What :meth:`release_memory` would release."""
        return [h.reservation for h in self.hosts.values() if h.reservation is not None]

    def allow(self) -> None:
        """From now on hosts are started."""
        self._allowed = True

    def request(self, wanted: Assignment | PrewarmSpec) -> None:
        """Work has come that may need a host for this."""
        if not self._allowed:
            return
        preload = self._facts.preload(wanted)
        if preload is None:
            return
        self._requested.pop(preload.name, None)
        self._requested[preload.name] = preload
        self._out.add(SetTimer((TIMER, preload.name), self._out.now_s + IDLE_S))

    def take(self, wanted: Assignment | PrewarmSpec) -> StandbyHost | None:
        """Gives a host away; None where there is none for this."""
        preload = self._facts.preload(wanted)
        if preload is None or preload.name not in self.hosts:
            return None
        return self._remove(preload.name, StandbyState.TAKEN)

    def release_memory(self) -> None:
        """Kills those that reserve memory."""
        for name in [n for n, host in self.hosts.items() if host.reservation is not None]:
            self._stop(name)

    def advance(self, *, busy: bool) -> None:
        """Starts the next one where it is time.

        Args:
            busy: whether an engine loads, or an attempt waits for the memory to.
        """
        if not self._allowed or busy or not self._requested:
            return
        if any(host.state is StandbyState.IMPORTING for host in self.hosts.values()):
            return
        for name in reversed(self._requested):
            if name not in self.hosts and name not in self._failed:
                self._start(self._requested[name])
                return

    def ready(self, host_id: int) -> None:
        """A host has imported its libraries; harmless when it says so again."""
        name = self._name(host_id)
        if name is not None and self.hosts[name].state is StandbyState.IMPORTING:
            self.hosts[name].move(StandbyState.READY)

    def exited(self, host_id: int) -> None:
        """A host is gone. No other is started where it could not import, or after three crashes."""
        name = self._name(host_id)
        if name is None:
            return
        if self.hosts[name].state is StandbyState.IMPORTING:
            # Where the library is broken, its engine says so with the attempt that needs it.
            self._failed.add(name)
        else:
            self._crashes[name] += 1
            if self._crashes[name] >= CRASHES_MAX:
                self._failed.add(name)
        self._stop(name)

    def expired(self, preload: str) -> None:
        """No work has asked for a preload within ``IDLE_S``."""
        self._requested.pop(preload, None)
        if preload in self.hosts:
            self._stop(preload)

    def close(self) -> None:
        """Kills all; none is started after this."""
        self._allowed = False
        for name in self._requested:
            self._out.add(ClearTimer((TIMER, name)))
        self._requested.clear()
        for name in list(self.hosts):
            self._stop(name)

    def _start(self, preload: Preload) -> None:
        reservation = None
        if self._reserves:
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
