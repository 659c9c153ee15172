"""A simulated worker: its reports, its power, and how its engine instances share its devices.

Decisions are made by the shipped worker agent, in ``shell``; messages are sent by ``connection``.
"""

from collections.abc import Callable

import msgspec

from flowmesh_core.protocol.messages import Component, Hello, WorkerShape
from flowmesh_core.worker_agent.events import Event, StopRequested
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_core.worker_agent.transitions import InstanceState
from flowmesh_sim.models.devices import Device
from flowmesh_sim.workers.connection import SimConnection
from flowmesh_sim.workers.context import WorkerContext
from flowmesh_sim.workers.disk_cache import DiskCache
from flowmesh_sim.workers.instance import MOVES_WEIGHTS
from flowmesh_sim.workers.shell import SimShell

REPORTED_TIERS = (InstanceState.READY, InstanceState.FALLING_ASLEEP, InstanceState.ASLEEP)
RUN, START, IDLE = "run", "start", "idle"
STARTING = (InstanceState.STARTING, InstanceState.LOADING, InstanceState.WAKING)


class SimWorker:
    """One worker, from its process's start to its end.

    Attributes:
        slow: factor by which everything takes longer here now.
        skew_s: error of its wall clock.
        busy_s: seconds in which something ran; ``joules`` is the energy that it has used.
        held_s: seconds in which it had an attempt, also while loading and fetching; ``freed_s`` is
            when it last began or ceased to have one.
        gone: whether the process has ended; ``left_s`` is when.
        activity: changes of what its hosts do, with their times: ``run`` an attempt, ``start``
            while none runs, or ``idle``.
    """

    def __init__(
        self,
        around: WorkerContext,
        shape: WorkerShape,
        device: Device,
        *,
        incarnation: str,
        billed_since_s: float,
        phase_s: float,
        on_gone: Callable[["SimWorker"], None],
    ) -> None:
        """Starts the process, which connects.

        Args:
            around: shared by all workers.
            shape: resources and labels that it reports.
            device: the class of its devices.
            incarnation: unique per process.
            billed_since_s: virtual time from which it is paid for.
            phase_s: where in the interval its heartbeats fall.
            on_gone: called with this worker when the process has ended.
        """
        self.engine = around.engine
        self.around = around
        self.shape = shape
        self.device = device
        self.incarnation = incarnation
        self.born_s = self.engine.now_s
        self.billed_since_s = billed_since_s
        self.slow = 1.0
        self.skew_s = 0.0
        self.busy_s = 0.0
        self.joules = 0.0
        self.held_s = 0.0
        self.freed_s = self.engine.now_s
        self.gone = False
        self.left_s = 0.0
        self.activity: list[tuple[float, str]] = [(self.engine.now_s, IDLE)]
        self._has_attempts = False
        self._watts = float(device.facts.idle_w)
        self._busy = False
        self._measured_s = self.engine.now_s
        self._on_gone = on_gone
        self.shell = SimShell(self)
        self.connection = SimConnection(self, phase_s)

    @property
    def name(self) -> str:
        """Its name."""
        return self.shape.name

    @property
    def agent(self) -> WorkerAgent:
        """The worker agent, which makes the decisions."""
        return self.shell.agent

    @property
    def disk(self) -> DiskCache:
        """Its disk."""
        return self.shell.transfers.disk

    @property
    def draining(self) -> bool:
        """Whether it drains."""
        return self.agent.reports.draining

    @property
    def attempts(self) -> int:
        """How many attempts it has."""
        return len(self.agent.state.attempts)

    @property
    def warm_mib(self) -> int:
        """Memory of its loaded engine instances."""
        instances = self.agent.state.instances.values()
        ready = (i for i in instances if i.state is InstanceState.READY)
        return sum(i.reservation.memory_mib for i in ready)

    def wall_s(self, virtual_s: float) -> float:
        """Returns its wall clock at a virtual time."""
        return self.around.epoch_s + virtual_s + self.skew_s

    # -- reports ---------------------------------------------------------------------------------

    def hello(self, epoch: int) -> Hello:
        """Returns a full report for a new connection."""
        now_s = self.engine.now_s
        full = self.agent.full_report(now_s)
        return Hello(
            version=1,
            epoch=epoch,
            incarnation=self.incarnation,
            started_s=self.wall_s(self.billed_since_s),
            shape=self.shape,
            attempts=full.attempts,
            ended=full.ended,
            instances=full.instances,
            components=self.components(),
            draining=full.draining,
            checkpoints=full.checkpoints,
            age_s=now_s - self.billed_since_s,
            replicas=self.agent.replica_states() if self.around.serves else msgspec.UNSET,
        )

    def components(self) -> tuple[Component, ...]:
        """Returns models and adapters, each with its fastest tier."""
        tier = "device" if self.device.accelerator else "host"
        hosts = self.shell.hosts.values()
        tiers: dict[str, str] = {}
        for host in sorted(hosts, key=lambda host: host.state is InstanceState.READY):
            if host.state in REPORTED_TIERS:
                found = tier if host.state is InstanceState.READY else "host"
                tiers.update(dict.fromkeys(host.loaded, found))
        return tuple(Component(d, tiers.get(d, "disk"), n) for d, n in self.disk.weights.items())

    def refresh(self) -> None:
        """Updates the progress of running attempts, before a heartbeat."""
        progress: list[Event] = []
        for host in self.shell.hosts.values():
            if host.running:
                progress += host.progress()
        if progress:
            self.shell.post(*progress)

    # -- measures --------------------------------------------------------------------------------

    def replan(self) -> None:
        """Computes every rate anew: instances that run on a device share it equally."""
        self.measure()
        hosts = [host for host in self.shell.hosts.values() if not host.has_ended]
        busy = [host for host in hosts if host.running]
        drawing = [host for host in hosts if host.running or host.state in MOVES_WEIGHTS]
        loaded = any(host.loaded for host in hosts)
        facts = self.device.facts
        self._watts = float(facts.context_w if loaded else facts.idle_w) * self.shape.devices
        if drawing:
            used = sum(host.watts() for host in drawing) / len(drawing)
            on = len({i for host in drawing for i in host.on}) or 1
            self._watts = used * on + self._watts * (1 - on / self.shape.devices)
        self._busy = bool(busy)
        self.note_activity()
        for host in busy:
            host.batch.advance()
            mates = sum(bool(set(other.on) & set(host.on)) for other in busy) if host.on else 1
            host.batch.plan(1.0 / mates, self.slow, self._watts / len(drawing))
        for host in hosts:
            if not host.running:
                host.batch.plan(1.0, self.slow, 0.0)

    def note_activity(self) -> None:
        """Records what the hosts do from now on, if it has changed."""
        hosts = self.shell.hosts.values()
        busy = any(host.running for host in hosts)
        starting = any(host.state in STARTING for host in hosts)
        activity = RUN if busy else START if starting else IDLE
        if activity != self.activity[-1][1]:
            self.activity.append((self.engine.now_s, activity))

    def measure(self) -> None:
        """Counts energy and busy time until now."""
        passed = self.engine.now_s - self._measured_s
        self._measured_s = self.engine.now_s
        self.joules += self._watts * passed
        self.busy_s += passed if self._busy else 0.0

    def count_attempts(self) -> None:
        """Counts the time in which the worker has attempts."""
        has_attempts = bool(self.agent.state.attempts)
        if has_attempts is not self._has_attempts:
            now_s = self.engine.now_s
            if self._has_attempts:
                self.held_s += now_s - self.freed_s
            self._has_attempts = has_attempts
            self.freed_s = now_s

    # -- the end ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Asks the process to end within its grace period; does nothing if it drains already."""
        if not (self.draining or self.gone):
            self.shell.post(StopRequested())

    def leave(self) -> None:
        """Ends the process with a goodbye."""
        if not self.gone:
            self.connection.goodbye()
        self.die()

    def die(self) -> None:
        """Ends the process at once; no message is sent."""
        if self.gone:
            return
        self.measure()
        self.gone, self.left_s = True, self.engine.now_s
        self.shell.stop()
        self.connection.closed()
        self._on_gone(self)
