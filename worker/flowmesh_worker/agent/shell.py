"""Runs the worker agent: posts what happens to it, and does what it says.

Events are handled one after another on the event loop. An instruction that does I/O starts a task,
which posts the answer.
"""

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.machine import WorkerAgent
from flowmesh_worker.agent.attempt_data import AttemptData
from flowmesh_worker.agent.prewarm_data import PrewarmData
from flowmesh_worker.instances.engine_hosts import EngineHosts
from flowmesh_worker.instances.standby_hosts import StandbyProcesses
from flowmesh_worker.ipc.frames import Cancel, Release, Stop

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


class ReportSender(Protocol):
    """What the shell asks of the connection."""

    def report_within(self, delay_s: float) -> None:
        """Sends the next report no later than this."""
        ...


class Shell:
    """The agent with the parts of the worker that do I/O.

    Attributes:
        left: set once the agent says that the worker leaves.
        broken: the error after which the agent cannot go on; None while it can.
    """

    def __init__(self, agent: WorkerAgent) -> None:
        """Does nothing before :meth:`connect`."""
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
    ) -> None:
        """Takes the parts that do what the agent says."""
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
            i.SetTimer: self._set_timer,
            i.ClearTimer: self._clear_timer,
            i.SendReport: lambda x: reports.report_within(x.at_s - time.monotonic()),
            i.Leave: lambda _: self.left.set(),
        }

    def post(self, event: e.Event) -> None:
        """Hands the agent an event, and does what it says. One posted meanwhile comes after it."""
        self._events.append(event)
        if self._handling or self._closed or self.broken is not None:
            return
        self._handling = True
        try:
            while self._events:
                event = self._events.popleft()
                for instruction in self._agent.apply(event, time.monotonic(), time.time()):
                    self._perform[type(instruction)](instruction)
        except Exception as error:  # its state may be wrong now: the worker ends, work is redone
            self.broken = error
            self.left.set()
        finally:
            self._handling = False

    def close(self) -> None:
        """Does nothing any more, whatever is posted."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

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
    _log.warning(
        "%s is not prewarmed: %s; %s",
        spec.engine,
        failure.message,
        failure.remedy or "it is tried again when work asks for it",
        extra={
            "signature": spec.signature,
            "engine": spec.engine,
            "reason": failure.message,
            "detail": failure.detail,
        },
    )
