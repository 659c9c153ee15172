"""The worker agent: events in, instructions out. It reads no clock and does no I/O.

The worker and the simulator run this same code, each in a shell of its own::

    for instruction in agent.apply(event, now_s, wall_s):
        shell.perform(instruction)  # answers with further events
    sync = agent.next_sync(seq, now_s, components)
"""

from collections.abc import Callable

import msgspec

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    Desired,
    EngineInstanceState,
    FailureReport,
    ServingReplicaState,
    Sync,
)
from flowmesh_core.worker_agent import attempts, drain, hub, prewarm, replicas, sleep, standby
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent.attempts import Attempts
from flowmesh_core.worker_agent.drain import Drain
from flowmesh_core.worker_agent.instances import Instances
from flowmesh_core.worker_agent.instructions import Forget, Instruction
from flowmesh_core.worker_agent.memory_reservations import MemoryBudget
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.ports import EnergyCounter, EngineFacts, FetchCounter
from flowmesh_core.worker_agent.prewarm import Prewarmer
from flowmesh_core.worker_agent.replicas import Replicas
from flowmesh_core.worker_agent.reports import Reports
from flowmesh_core.worker_agent.standby import StandbyHosts
from flowmesh_core.worker_agent.state import AgentState, Instance


class AgentSettings(msgspec.Struct, frozen=True):
    """What a worker has and how it behaves.

    Attributes:
        memory_mib: host memory for engines on the CPU.
        devices: how many devices there are, with ``device_mib`` of memory each.
        grace_s: how long a drain may take.
        serves: whether it has a hub, and so can hold replicas of services.
        sleep_mib: part of the host memory that engine instances may take while they are asleep; 0
            has none sleep.
        asleep_device_mib: memory of each of its devices that an instance keeps while it is asleep.
    """

    memory_mib: int
    devices: int = 0
    device_mib: int = 0
    grace_s: float = 30.0
    serves: bool = False
    sleep_mib: int = 0
    asleep_device_mib: int = sleep.DEVICE_MIB


class FullReport(msgspec.Struct, frozen=True):
    """The part of ``Hello`` that the agent knows; see there for the fields."""

    attempts: tuple[AttemptProgress, ...]
    ended: tuple[AttemptEnd, ...]
    instances: tuple[EngineInstanceState, ...]
    checkpoints: tuple[Checkpoint, ...]
    draining: bool


class WorkerAgent:
    """Decides everything that one worker does.

    Attributes:
        state: attempts and engine instances; shells and tests read it.
        memory, standby, instances, prewarmer, replicas, attempts, drain, reports: its parts.
    """

    def __init__(
        self,
        settings: AgentSettings,
        facts: EngineFacts,
        energy: EnergyCounter,
        fetches: FetchCounter,
    ) -> None:
        self._out = Outbox()
        self._connected = False
        self.state = AgentState()
        self.memory = MemoryBudget(settings.memory_mib, settings.devices, settings.device_mib)
        self.reports = Reports(self._out)
        self.standby = StandbyHosts(
            self._out,
            facts,
            self.memory,
            on_cpu=not settings.devices,
            number=lambda: next(self.state.numbers),
        )
        self.instances = Instances(
            self.state,
            self._out,
            facts,
            self.memory,
            self.standby,
            self.reports,
            sleep_mib=settings.sleep_mib,
            asleep_device_mib=settings.asleep_device_mib,
        )
        self.prewarmer = Prewarmer(self.state, self._out, facts, self.instances, self.standby)
        self.replicas = Replicas(
            self.state, self._out, self.prewarmer, self.reports, serves=settings.serves
        )
        self.attempts = Attempts(
            self.state,
            self._out,
            facts,
            energy,
            fetches,
            self.instances,
            self.standby,
            self.reports,
        )
        self.drain = Drain(
            self.state,
            self._out,
            self.attempts,
            self.prewarmer,
            self.replicas,
            self.standby,
            self.reports,
            grace_s=settings.grace_s,
        )
        self._handlers: dict[type, Callable[..., None]] = {
            e.Connected: self._connection_opened,
            e.Disconnected: self._disconnected,
            e.DesiredReceived: self._follow,
            e.StopRequested: self._stop,
            e.TimerFired: self._timer_fired,
            e.InputsReady: lambda x: self.attempts.inputs_ready(x.attempt_id),
            e.InputsFailed: lambda x: self.attempts.inputs_failed(x.attempt_id, x.failure),
            e.CheckpointFetched: self._checkpoint_fetched,
            e.CheckpointStored: lambda x: self.reports.checkpoint(x.checkpoint),
            e.CheckpointsFlushed: lambda x: self.attempts.checkpoints_flushed(x.attempt_id),
            e.ComponentsChanged: self._components_changed,
            e.ComponentFetched: lambda x: self.prewarmer.component_fetched(x.signature, x.port),
            e.ComponentFailed: lambda x: self.prewarmer.component_failed(x.signature, x.failure),
            e.OutputsStored: self._outputs_stored,
            e.OutputsFailed: lambda x: self.attempts.outputs_failed(x.attempt_id, x.failure),
            e.HostStarted: self._of_instance(lambda i, x: self.instances.started(i)),
            e.HostLoaded: self._of_instance(self.attempts.host_loaded),
            e.HostLoadFailed: self._of_instance(_load_failed),
            e.HostAsleep: self._of_instance(lambda i, x: self.instances.fell_asleep(i)),
            e.HostAwake: self._of_instance(self.attempts.host_awake),
            e.HostSleepFailed: self._of_instance(
                lambda i, x: self.instances.sleep_failed(i, x.failure)
            ),
            e.HostExited: self._of_instance(self._host_exited),
            e.HostPrinted: self._of_instance(lambda i, x: self.attempts.printed(i, x.line)),
            e.HostSilent: self._of_instance(lambda i, x: self.instances.silent(i, x.silent_s)),
            e.MemoryMeasured: self._of_instance(
                lambda i, x: self.instances.measured(i, x.used_mib)
            ),
            e.AttemptProgressed: self.attempts.progressed,
            e.AttemptFinished: self._of_instance(self.attempts.finished),
            e.StandbyReady: lambda x: self.standby.ready(x.host_id),
            e.StandbyExited: lambda x: self.standby.exited(x.host_id),
            e.HubReady: lambda x: self.replicas.hub.ready(x.hub_id),
            e.HubExited: lambda x: self.replicas.hub_exited(x.hub_id, x.reason),
            e.CallsBusy: self.replicas.busy,
        }

    # -- what shells call ------------------------------------------------------------------------

    def apply(self, event: e.Event, now_s: float, wall_s: float) -> list[Instruction]:
        """Handles an event.

        Args:
            event: what happened.
            now_s: seconds on a clock that never steps back, the same for all calls.
            wall_s: Unix time; goes into reports only.

        Returns:
            Instructions, to be performed in order.

        Raises:
            InvariantError: a state would change in a way that the tables do not allow.
        """
        out = self._out
        out.now_s, out.wall_s = now_s, wall_s
        kind = type(event)
        self._handlers[kind](event)
        if kind not in _MOVES_NOTHING:
            if self.prewarmer.pinned:
                self.prewarmer.advance_pinned()
                self.attempts.return_displaced()
            self.attempts.place_waiting()
            self.prewarmer.advance(may_start=self._connected and not self.reports.draining)
            self.replicas.advance()
            self.standby.advance(busy=self.instances.busy)
            self.drain.advance()
        return out.take()

    def full_report(self, now_s: float) -> FullReport:
        """Returns everything for a ``Hello``, after which only changes are reported."""
        reports = self.reports
        full = FullReport(
            attempts=reports.full_progress(),
            ended=tuple(reports.ended.values()),
            instances=self.instance_states(),
            checkpoints=tuple(reports.checkpoints.values()),
            draining=reports.draining,
        )
        reports.all_reported(now_s)
        return full

    def next_sync(
        self, seq: int, now_s: float, components: Callable[[], tuple[Component, ...]]
    ) -> Sync:
        """Returns what has changed since the last report; ``components`` is called if they have."""
        return self.reports.next_sync(
            seq, now_s, self.instance_states, components, self.replicas.states
        )

    def replica_states(self) -> tuple[ServingReplicaState, ...]:
        """Returns every replica of a service as it is reported, for a ``Hello``."""
        return self.replicas.states()

    def instance_states(self) -> tuple[EngineInstanceState, ...]:
        """Returns every engine instance as it is reported."""
        return tuple(instance.report() for instance in self.state.instances.values())

    # -- handlers --------------------------------------------------------------------------------

    def _connection_opened(self, _: e.Connected) -> None:
        self._connected = True

    def _disconnected(self, _: e.Disconnected) -> None:
        self._connected = False

    def _follow(self, event: e.DesiredReceived) -> None:
        desired = event.desired
        for attempt_id in desired.acknowledged:
            self.reports.acknowledge(attempt_id)
        if desired.full_state:
            self._stop_all_but(desired)
        for assignment in desired.assign:
            self.attempts.start(assignment)
        for attempt_id in desired.cancel:
            self.attempts.stop(attempt_id, _cancelled("the attempt was cancelled"))
        if desired.forget:
            self.instances.forget(frozenset(desired.forget))
            self._out.add(Forget(desired.forget))
        if desired.drain:
            self.drain.begin()
        if desired.prewarm is not None and not self.reports.draining:
            self.standby.allow()
            self.prewarmer.replace(desired.prewarm)
        if desired.routers is not None:
            self.replicas.hub.connect_to(desired.routers)
        if desired.replicas is not None and not self.reports.draining:
            self.standby.allow()
            self.replicas.replace(desired.replicas)

    def _stop_all_but(self, desired: Desired) -> None:
        wanted = {*desired.keep, *(a.attempt_id for a in desired.assign)}
        for attempt_id in [a for a in self.state.attempts if a not in wanted]:
            failure = _cancelled("the control plane does not want this attempt any more")
            self.attempts.stop(attempt_id, failure)

    def _stop(self, _: e.StopRequested) -> None:
        if self.reports.draining:
            self.drain.hurry()
        else:
            self.drain.begin()

    def _timer_fired(self, event: e.TimerFired) -> None:
        kind, subject = event.timer
        handler = {
            attempts.TIMEOUT_TIMER: self.attempts.timed_out,
            attempts.CANCEL_TIMER: self.attempts.not_stopped,
            standby.TIMER: self.standby.expired,
            drain.TIMER: self.drain.timer_fired,
            prewarm.TIMER: self.prewarmer.retry,
            replicas.TIMER: self.replicas.end_now,
            hub.TIMER: self.replicas.hub.retry,
            sleep.TIMER: self.instances.sleep_hangs,
        }[kind]
        handler(subject)

    def _checkpoint_fetched(self, event: e.CheckpointFetched) -> None:
        if event.unusable is not None:
            self.reports.checkpoint(event.unusable)
        self.attempts.checkpoint_fetched(event.attempt_id, usable=event.unusable is None)

    def _components_changed(self, event: e.ComponentsChanged) -> None:
        self.prewarmer.components_changed(event.local)
        self.reports.components_changed()

    def _outputs_stored(self, event: e.OutputsStored) -> None:
        self.attempts.outputs_stored(event.attempt_id, event.outputs, event.inline)

    def _host_exited(self, instance: Instance, event: e.HostExited) -> None:
        self.attempts.host_exited(instance, event)
        self.prewarmer.instance_ended(instance)
        self.replicas.instance_ended(instance)

    def _of_instance(self, handler: Callable[..., None]) -> Callable[..., None]:
        """Looks the instance up; drops events of one that is gone."""

        def handle(event: e.HostExited) -> None:
            instance = self.instances.get(event.instance_id)
            if instance is not None:
                handler(instance, event)

        return handle


_MOVES_NOTHING = frozenset({e.AttemptProgressed, e.HostPrinted, e.CheckpointStored})
"""Events after which nothing that waits can go on."""


def _load_failed(instance: Instance, event: e.HostLoadFailed) -> None:
    """Records the cause; the process exits by itself."""
    instance.ending = event.failure


def _cancelled(message: str) -> FailureReport:
    return FailureReport(FailureKind.CANCELLED.value, message)
