"""A worker in virtual time: the worker agent in a shell that does what a scenario says.

``effects_of`` plays a scenario and returns what the agent does in it.
"""

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.golden.agent.format import (
    ASLEEP_DEVICE_MIB,
    Calls,
    Connect,
    Disconnect,
    Effect,
    EffectKind,
    Fault,
    HubExit,
    Input,
    Orphan,
    Scenario,
    Send,
    Sigterm,
    ordered,
    seconds,
)
from tests.golden.agent.virtual.connection import Connection
from tests.golden.agent.virtual.data import AttemptData, Components, PrewarmFetches
from tests.golden.agent.virtual.host import Host
from tests.golden.agent.virtual.hosts import EngineHosts, StandbyHosts
from tests.golden.agent.virtual.world import BEGIN_S, WALL_S, Facts, NoEnergy, NoFetchCounter, World

from flowmesh_core.protocol.messages import Component
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.invariants import check_agent
from flowmesh_core.worker_agent.machine import AgentSettings, WorkerAgent

if TYPE_CHECKING:
    from tests.golden.agent.virtual.timeline import Call

_GOODBYE_WITHIN_S = 2.0
_HOSTS_END_WITHIN_S = 3.0


class VirtualWorker:
    """The worker of a scenario.

    Attributes:
        world: the scenario and its effects.
        agent: the machine that decides.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.world = World(scenario)
        settings = AgentSettings(
            memory_mib=scenario.memory_mib,
            devices=scenario.devices,
            device_mib=scenario.device_mib,
            grace_s=scenario.grace_s,
            serves=scenario.hub_start_s is not None,
            sleep_mib=scenario.sleep_mib,
            asleep_device_mib=ASLEEP_DEVICE_MIB,
        )
        self.agent = WorkerAgent(settings, Facts(self.world), NoEnergy(), NoFetchCounter())
        self._events: list[e.Event] = []
        self._handling = self._closed = False
        self._timers: dict[e.TimerKey, Call] = {}
        self._phases: dict[str, str] = {}
        self._components = Components(self.world, self.post)
        self._prewarms = PrewarmFetches(self._components, self.post)
        self._standby = StandbyHosts(self.world, self.post)
        self._attempts = AttemptData(
            self.world, self._components, self.post, has_host=self._has_host
        )
        self._hosts = EngineHosts(self.world, self.post, self._attempts.take_checkpoint)
        self._connection = Connection(self.world, self.agent, self.post, self._component_report)
        attempts, hosts, prewarms = self._attempts, self._hosts, self._prewarms
        self._perform: dict[type, Callable[[Any], None]] = {
            i.FetchInputs: lambda x: attempts.fetch(x.assignment),
            i.FetchCheckpoint: lambda x: attempts.fetch_checkpoint(x.attempt_id),
            i.FlushCheckpoints: lambda x: attempts.flush_checkpoints(x.attempt_id),
            i.StoreOutputs: lambda x: attempts.store(x.attempt_id),
            i.DropAttempt: self._drop,
            i.StartHost: self._start_host,
            i.CloseHost: self._of_host(lambda host, x: host.close(x.within_s)),
            i.SleepHost: self._of_host(lambda host, x: hosts.sleep(x.instance_id, host)),
            i.WakeHost: self._of_host(lambda host, x: hosts.wake(x.instance_id, host)),
            i.KillHost: self._of_host(lambda host, x: host.kill()),
            i.RunAttempt: lambda x: hosts.run(
                x.instance_id, x.attempt_id, resumed=attempts.is_resumed(x.attempt_id)
            ),
            i.CancelAttempt: self._of_host(lambda host, x: host.cancel(x.attempt_id)),
            i.RequestCheckpoint: self._of_host(lambda host, x: host.stop(x.attempt_id)),
            i.ReleaseFiles: self._of_host(lambda host, x: host.release(x.attempt_id)),
            i.FetchComponent: prewarms.fetch,
            i.ReleaseComponents: lambda x: prewarms.release(x.signature),
            i.PrewarmFailed: lambda x: None,
            i.StartStandby: self._standby.start,
            i.StopStandby: lambda x: self._standby.stop(x.host_id),
            i.Forget: lambda x: None,  # it answers nothing
            i.StartHub: self._start_hub,
            i.StopHub: lambda x: None,
            i.PinInstance: lambda x: None,
            i.UnpinInstance: lambda x: None,
            i.AdmitCalls: lambda x: None,
            i.SetTimer: self._set_timer,
            i.ClearTimer: self._clear_timer,
            i.SendReport: lambda x: self._connection.report_at(x.at_s),
            i.Leave: lambda x: self._connection.close(_GOODBYE_WITHIN_S, self._close),
        }

    def play(self) -> None:
        """Plays the scenario."""
        scenario, time = self.world.scenario, self.world.time
        self.post(e.ComponentsChanged(self._components.digests()))  # what an earlier process left
        for t, group in itertools.groupby(scenario.inputs, key=lambda one: one.t):
            time.at(BEGIN_S + t, partial(self._give, list(group)))
        time.run(scenario.until_s, self._end_instant)

    def post(self, event: e.Event) -> None:
        """Hands the agent an event; one posted meanwhile comes after it."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        while self._events and not self._closed:
            event, now_s = self._events.pop(0), self.world.time.now_s
            found = self.agent.apply(event, now_s, WALL_S + now_s)
            check_agent(self.agent, found)
            for instruction in found:
                self._perform[type(instruction)](instruction)
        self._handling = False

    # -- inputs and instants ---------------------------------------------------------------------

    def _give(self, inputs: list[Input]) -> None:
        for one in inputs:
            match one:
                case Connect():
                    self._connection.connect()
                case Disconnect():
                    self._connection.disconnect()
                case Orphan():
                    self._close()
                case Sigterm():
                    self.post(e.StopRequested())
                case Send():
                    self._connection.follow(self.world.desired(one))
                case Calls() | HubExit():
                    self._give_calls(one)
                case Fault(kind="standby-crash"):
                    self._standby.crash(one.key)
                case Fault():
                    self._hosts.fault(one, self._reserved_mib)

    def _give_calls(self, one: Calls | HubExit) -> None:
        if isinstance(one, Calls):
            self.post(e.CallsBusy(one.replica, one.calls, one.units))
        else:
            number = self.agent.replicas.hub.number
            self.post(e.HubExited(number, "the scenario says so"))

    def _reserved_mib(self, instance_id: int) -> tuple[int, bool]:
        reserved = self.agent.state.by_id[instance_id].reservation
        return reserved.memory_mib, bool(reserved.devices)

    def _end_instant(self) -> bool:
        for attempt_id, progress in self.agent.reports.progress.items():
            if not self._closed and self._phases.get(attempt_id) != progress.phase:
                self._phases[attempt_id] = progress.phase
                self.world.add(EffectKind.PHASE, attempt_id, progress.phase)
        return self._connection.end_instant()

    def _component_report(self) -> tuple[Component, ...]:
        tiers = dict(self._hosts.components())
        digests = sorted(self._components.digests())
        return tuple(Component(d, tiers.get(d, "disk"), 1) for d in digests)

    # -- instructions ----------------------------------------------------------------------------

    def _drop(self, instruction: i.DropAttempt) -> None:
        attempt_id = instruction.assignment.attempt_id
        end = self.agent.reports.ended[attempt_id]
        used = end.usage
        spent = (used.fetch_s, used.load_s, used.run_s, used.put_s)
        how = end.failure.kind if end.failure is not None else "completed"
        self.world.add(
            EffectKind.END,
            attempt_id,
            how,
            *map(seconds, spent),
            used.resumed,
            end.log.splitlines(),
        )
        self._phases.pop(attempt_id, None)
        self._attempts.drop(instruction)

    def _start_hub(self, instruction: i.StartHub) -> None:
        start_s = self.world.scenario.hub_start_s
        assert start_s is not None, "a worker without a hub was to start one"
        self.world.time.after(start_s, partial(self.post, e.HubReady(instruction.hub_id)))

    def _start_host(self, instruction: i.StartHost) -> None:
        number = instruction.standby_id
        standby = self._standby.take(number) if number is not None else None
        self._hosts.start(instruction, standby)

    def _of_host(self, call: Callable[[Host, Any], None]) -> Callable[[Any], None]:
        """Drops instructions for a host that is gone."""

        def perform(instruction: Any) -> None:
            host = self._hosts.get(instruction.instance_id)
            if host is not None:
                call(host, instruction)

        return perform

    def _has_host(self, attempt_id: str) -> bool:
        return not self._hosts.ran_in[attempt_id].is_gone

    def _set_timer(self, instruction: i.SetTimer) -> None:
        self._clear_timer(instruction)
        fire = partial(self._fire, instruction.timer)
        self._timers[instruction.timer] = self.world.time.at(instruction.at_s, fire)

    def _clear_timer(self, instruction: i.SetTimer | i.ClearTimer) -> None:
        timer = self._timers.pop(instruction.timer, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, timer: e.TimerKey) -> None:
        del self._timers[timer]
        self.post(e.TimerFired(timer))

    # -- the end ---------------------------------------------------------------------------------

    def _close(self) -> None:
        """Ends everything; the worker has left when the last host is gone."""
        if self._closed:
            return
        self._closed = True
        self._prewarms.close()
        standby = self._standby.close()
        self._attempts.close()
        self._when_gone(standby, self._close_hosts)

    def _close_hosts(self) -> None:
        hosts = self._hosts.all()
        for host in hosts:
            host.close(_HOSTS_END_WITHIN_S)
            self.world.time.after(_HOSTS_END_WITHIN_S, host.kill)
        self._when_gone(hosts, self._left)

    def _when_gone(self, hosts: list[Host], then: Callable[[], None]) -> None:
        waiting = [host for host in hosts if not host.is_gone]
        if not waiting:
            then()
            return
        waiting[0].on_gone = partial(self._when_gone, waiting, then)

    def _left(self) -> None:
        self.world.add(EffectKind.LEAVE)
        self.world.time.stopped = True


def effects_of(
    scenario: Scenario, changes: Iterable[Callable[[WorkerAgent], None]] = ()
) -> list[Effect]:
    """Returns what the worker agent does in a scenario, as a recording has it.

    Args:
        scenario: to play.
        changes: called with the agent before it begins.
    """
    worker = VirtualWorker(scenario)
    for change in changes:
        change(worker.agent)
    worker.play()
    return ordered(worker.world.effects)
