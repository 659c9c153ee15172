"""The shell of the worker agent: hands it events and performs its instructions.

Events are handled one after another on the event loop. An instruction that needs I/O starts a task,
which posts the answer. Nothing is decided here.
"""

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_core.worker_agent.prewarm import RETRY_STORE_S
from flowmesh_worker.agent.attempt_data import AttemptData
from flowmesh_worker.agent.prewarm_data import PrewarmData
from flowmesh_worker.instances.engine_hosts import EngineHosts
from flowmesh_worker.instances.standby_hosts import StandbyProcesses
from flowmesh_worker.ipc.frames import Cancel, FallAsleep, Release, Stop, WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from flowmesh_core.units import Digest
    from flowmesh_worker.agent.ports import ServingHub

_log = logging.getLogger(__name__)


class ReportSender(Protocol):
    """The part of the connection that the shell uses."""

    def report_within(self, delay_s: float) -> None:
        """Sends the next report within this time."""
        ...


class Shell:
    """Connects the agent with the parts of the worker that do I/O.

    Attributes:
        left: set when the agent wants the worker to leave, or is broken.
        broken: the error after which the agent cannot continue; None before.
    """

    def __init__(self, agent: WorkerAgent) -> None:
        self.left = asyncio.Event()
        self.broken: BaseException | None = None
        self._agent = agent
        self._events: deque[e.Event] = deque()
        self._handling = self._closed = False
        self._timers: dict[e.TimerKey, asyncio.TimerHandle] = {}
        self._perform: dict[type, Callable[[Any], None]] = {}

    def connect(
        self,
        attempts: AttemptData,
        prewarms: PrewarmData,
        hosts: EngineHosts,
        standby: StandbyProcesses,
        reports: ReportSender,
        forget: "Callable[[tuple[Digest, ...]], None]",
        hub: "ServingHub | None" = None,
    ) -> None:
        """Sets the parts that perform instructions; no event may be posted before.

        Without a hub the agent must have been made as one that serves nothing.
        """
        self._attempts = attempts
        self._prewarms = prewarms
        self._hosts = hosts
        self._standby = standby
        self._perform = {
            i.FetchInputs: lambda x: attempts.fetch(x.assignment),
            i.FetchCheckpoint: lambda x: attempts.fetch_checkpoint(x.attempt_id),
            i.FlushCheckpoints: lambda x: attempts.flush_checkpoints(x.attempt_id),
            i.StoreOutputs: lambda x: attempts.store(x.attempt_id),
            i.DropAttempt: attempts.drop,
            i.StartHost: self._start_host,
            i.CloseHost: lambda x: hosts.close(x.instance_id, x.within_s),
            i.SleepHost: lambda x: hosts.send(x.instance_id, FallAsleep()),
            i.WakeHost: lambda x: hosts.send(x.instance_id, WakeUp()),
            i.KillHost: lambda x: hosts.kill(x.instance_id),
            i.RunAttempt: lambda x: hosts.send(x.instance_id, attempts.run_message(x.attempt_id)),
            i.CancelAttempt: lambda x: hosts.send(x.instance_id, Cancel(x.attempt_id)),
            i.RequestCheckpoint: lambda x: hosts.send(x.instance_id, Stop(x.attempt_id)),
            i.ReleaseFiles: lambda x: hosts.send(x.instance_id, Release(x.attempt_id)),
            i.FetchComponent: prewarms.fetch,
            i.ReleaseComponents: lambda x: prewarms.release(x.signature),
            i.PrewarmFailed: _log_failed_prewarm,
            i.StartStandby: standby.start,
            i.StopStandby: lambda x: standby.stop(x.host_id),
            i.Forget: lambda x: forget(x.digests),
            i.SetTimer: self._set_timer,
            i.ClearTimer: self._clear_timer,
            i.SendReport: lambda x: reports.report_within(x.at_s - time.monotonic()),
            i.Leave: lambda _: self.left.set(),
        }
        if hub is not None:
            self._perform |= self._of_hub(hub)

    def post(self, event: e.Event) -> None:
        """Hands the agent an event and performs its instructions; those posted meanwhile follow."""
        self._events.append(event)
        if self._handling or self._closed or self.broken is not None:
            return
        self._handling = True
        try:
            while self._events:
                event = self._events.popleft()
                for instruction in self._agent.apply(event, time.monotonic(), time.time()):
                    self._perform[type(instruction)](instruction)
        except Exception as error:  # its state may be wrong: the worker ends, its work is redone
            self.broken = error
            self.left.set()
        finally:
            self._handling = False

    def close(self) -> None:
        """Cancels all timers; events that are posted later are ignored."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _of_hub(self, hub: "ServingHub") -> "dict[type, Callable[[Any], None]]":
        def admit(instruction: i.AdmitCalls) -> None:
            number = instruction.instance_id
            socket = self._hosts.listen_for_calls(number)
            if socket is not None:  # else its exit is already on its way to the agent
                hub.admit(number, socket, instruction.replica, instruction.halvings)

        return {
            i.StartHub: lambda x: hub.start(x.hub_id, x.routers),
            i.StopHub: lambda x: hub.stop(x.hub_id),
            i.PinInstance: lambda _: None,  # a host listens once calls are admitted
            i.UnpinInstance: lambda x: hub.withdraw(x.replica_id),
            i.AdmitCalls: admit,
        }

    def _start_host(self, instruction: i.StartHost) -> None:
        wanted = instruction.wanted
        if isinstance(wanted, Assignment):
            components = self._attempts.components(wanted)
            mixed = tuple(p for p in wanted.components if p not in components)
        else:
            components, mixed = (
                self._prewarms.components(wanted.signature),
                wanted.per_attempt_components,
            )
        number = instruction.standby_id
        standby = self._standby.take(number) if number is not None else None
        self._hosts.start(instruction, components, mixed, standby)

    def _set_timer(self, instruction: i.SetTimer) -> None:
        self._clear_timer(instruction)
        loop = asyncio.get_running_loop()
        delay_s = max(0.0, instruction.at_s - time.monotonic())
        self._timers[instruction.timer] = loop.call_later(delay_s, self._fire, instruction.timer)

    def _clear_timer(self, instruction: i.SetTimer | i.ClearTimer) -> None:
        timer = self._timers.pop(instruction.timer, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, timer: e.TimerKey) -> None:
        del self._timers[timer]
        self.post(e.TimerFired(timer))


def _log_failed_prewarm(instruction: i.PrewarmFailed) -> None:
    spec, failure = instruction.spec, instruction.failure
    if failure.kind == FailureKind.STORE.value:
        retry = f"it is retried after {RETRY_STORE_S:.0f} s"
        consequence = f"{failure.remedy}; {retry}" if failure.remedy else retry
    else:
        consequence = failure.remedy or "it is loaded when an attempt needs it"
    _log.warning(
        "%s is not prewarmed: %s; %s",
        spec.engine,
        failure.message,
        consequence,
        extra={
            "signature": spec.signature,
            "engine": spec.engine,
            "reason": failure.message,
            "detail": failure.detail,
        },
    )
