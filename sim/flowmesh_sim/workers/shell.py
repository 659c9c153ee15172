"""The simulated worker's shell: performs the worker agent's instructions in virtual time.

The agent (``flowmesh_core.worker_agent``) is the code that real workers run. This module performs
its instructions with modelled hosts, disks and stores, and posts the results as events. It decides
nothing.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.machine import AgentSettings, WorkerAgent
from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.workers.batch import SimJob
from flowmesh_sim.workers.engine_facts import SimEngineFacts
from flowmesh_sim.workers.fetch_counter import SimFetchCounter
from flowmesh_sim.workers.inputs import as_assignment
from flowmesh_sim.workers.instance import SimInstance
from flowmesh_sim.workers.transfers import Transfers
from flowmesh_sim.workers.worker_hub import WorkerHub

if TYPE_CHECKING:
    from flowmesh_sim.workers.worker import SimWorker


class SimShell:
    """Connects the agent of a worker with the models that it acts on.

    Attributes:
        agent: makes the decisions.
        hosts: engine hosts by the id of their instance, also closing ones.
        hub: takes calls for replicas.
        transfers: fetches and uploads.
    """

    def __init__(self, worker: "SimWorker") -> None:
        self._worker = worker
        self._context = context = worker.around
        shape, device = worker.shape, worker.device
        self.hosts: dict[int, SimInstance] = {}
        self.transfers = Transfers(context, self.post, self._loaded)
        settings = AgentSettings(
            memory_mib=shape.host_memory_mib,
            devices=shape.devices if device.accelerator else 0,
            device_mib=device.memory_mib,
            grace_s=context.grace_s,
            serves=context.serves,
            sleep_mib=int(shape.host_memory_mib * context.duties.sleep.host_limit_share),
            asleep_device_mib=int(context.duties.sleep.device_mib),
        )
        fetches = SimFetchCounter(self.transfers.disk.received_bytes)
        self.agent = WorkerAgent(settings, SimEngineFacts(context, device), self, fetches)
        self._events: deque[e.Event] = deque()
        self._busy = self._changed = False
        self._runs = 0
        self._timers: dict[e.TimerKey, Timer] = {}
        self._standby: dict[int, Timer] = {}
        self.hub = WorkerHub(worker, self.post)
        transfers = self.transfers
        self._perform: dict[type, Callable[[Any], object]] = {
            i.FetchInputs: lambda x: transfers.fetch_inputs(x.assignment),
            i.FetchCheckpoint: lambda x: transfers.fetch_checkpoint(x.attempt_id),
            i.FlushCheckpoints: lambda x: self.post(e.CheckpointsFlushed(x.attempt_id)),
            i.StoreOutputs: lambda x: transfers.store_outputs(x.attempt_id),
            i.DropAttempt: lambda x: transfers.drop(x.assignment.attempt_id),
            i.StartHost: self._start_host,
            i.CloseHost: self._on_host(self._close_host),
            i.SleepHost: self._on_host(self._sleep),
            i.WakeHost: self._on_host(self._wake),
            i.KillHost: self._on_host(lambda host, x: host.exit()),
            i.RunAttempt: self._on_host(self._run_attempt),
            i.CancelAttempt: self._on_host(lambda host, x: host.cancel(x.attempt_id)),
            i.RequestCheckpoint: self._on_host(
                lambda host, x: host.request_checkpoint(x.attempt_id)
            ),
            i.ReleaseFiles: _nothing,
            i.FetchComponent: lambda x: transfers.fetch_component(x.signature, x.port, x.artifact),
            i.ReleaseComponents: lambda x: transfers.release_components(x.signature),
            i.PrewarmFailed: _nothing,
            i.StartStandby: self._start_standby,
            i.StopStandby: lambda x: cancel(self._standby.pop(x.host_id)),
            i.Forget: lambda _: None,  # nothing is revoked in simulated worlds
            i.StartHub: lambda x: self.hub.start(x.hub_id),
            i.StopHub: lambda _: self.hub.stop(),
            i.PinInstance: _nothing,
            i.UnpinInstance: lambda x: self.hub.withdraw(x.replica_id),
            i.AdmitCalls: lambda x: self.hub.admit(x.instance_id, x.replica),
            i.SetTimer: self._set_timer,
            i.ClearTimer: lambda x: cancel(self._timers.pop(x.timer, None)),
            i.SendReport: lambda x: worker.connection.send_by(x.at_s),
            i.Leave: lambda _: self.engine.after(0.0, worker.leave),
        }

    @property
    def engine(self) -> Environment:
        """Virtual time."""
        return self._context.engine

    def post(self, *events: e.Event) -> None:
        """Hands events to the agent and performs its instructions; new ones meanwhile follow."""
        worker, agent, now_s = self._worker, self.agent, self.engine.now_s
        if worker.gone:
            return
        self._events.extend(events)
        if self._busy:
            return
        self._busy = True
        wall_s = worker.wall_s(now_s)
        while self._events:
            event = self._events.popleft()
            if type(event) is e.HostExited:
                self.hosts.pop(event.instance_id, None)
                self.hub.host_lost(event.instance_id)
            instructions = agent.apply(event, now_s, wall_s)
            for instruction in instructions:
                self._perform[type(instruction)](instruction)
            self._context.applied(agent, instructions)
        self._busy = False
        worker.count_attempts()
        if self._changed:
            self._changed = False
            worker.replan()

    def changed(self) -> None:
        """As ``InstanceOwner.changed``."""
        self._changed = True

    def stop(self) -> None:
        """Ends everything: the worker's process is gone."""
        for timer in (*self._timers.values(), *self._standby.values()):
            cancel(timer)
        self.hub.stop()
        for host in self.hosts.values():
            host.stop()
        self.transfers.stop()

    def _loaded(self) -> set[Digest]:
        return {digest for host in self.hosts.values() for digest in host.loaded}

    # -- hosts -----------------------------------------------------------------------------------

    def _on_host(self, perform: Callable[[SimInstance, Any], None]) -> Callable[[Any], None]:
        def on_host(instruction: Any) -> None:
            host = self.hosts.get(instruction.instance_id)
            if host is not None:
                perform(host, instruction)

        return on_host

    def _start_host(self, instruction: i.StartHost) -> None:
        context, worker, reservation = self._context, self._worker, instruction.reservation
        duties, slow = context.duties, worker.slow
        a = as_assignment(instruction.wanted)
        host = SimInstance(
            self,
            context.store,
            instruction.instance_id,
            a.engine,
            reservation,
            device=worker.device,
            model=duties.model_of(a),
            capacity=context.capacity(a.engine),
        )
        host.asleep_mib = duties.asleep_mib(a, worker.device)
        host.weights_bytes = duties.weights_bytes(a)
        self.hosts[host.id] = host
        process_s, load_s = duties.start_s(a, worker.device)
        start_s = process_s * slow
        if instruction.standby_id is not None:
            timer = self._standby.pop(instruction.standby_id)
            cancel(timer)
            start_s = min(start_s, max(0.0, timer[0] - self.engine.now_s))
        loaded = tuple(a.inputs[p].artifact.digest for p in a.components if p in a.inputs)
        host.start(start_s, load_s * slow, loaded)
        worker.note_activity()
        if duties.needs_mib(a) > a.memory_mib * max(1, len(reservation.devices)):
            message = f"{a.engine} does not fit its memory"
            # Engines compare what the model's files say with their memory before they load.
            failure = FailureReport(FailureKind.OUT_OF_MEMORY.value, message)
            host.refuse(duties.refused_s * slow, failure)

    def _sleep(self, host: SimInstance, _: i.SleepHost) -> None:
        sleep_s = self._context.duties.sleep_s(host.weights_bytes, again=host.has_slept)
        host.sleep(sleep_s * self._worker.slow)

    def _wake(self, host: SimInstance, _: i.WakeHost) -> None:
        host.wake(self._context.duties.wake_s(host.weights_bytes) * self._worker.slow)

    def _close_host(self, host: SimInstance, instruction: i.CloseHost) -> None:
        host.close(min(instruction.within_s, self._context.unload_s[0 if host.loaded else 1]))

    def _run_attempt(self, host: SimInstance, instruction: i.RunAttempt) -> None:
        attempt = self.transfers.attempts[instruction.attempt_id]
        duty = self._context.duties.of(attempt.assignment, self._worker.device)
        left = duty.steps * (1.0 - attempt.resumed)
        self._runs += 1
        job = SimJob(attempt.assignment, duty, left, self._runs, self.engine.now_s, attempt.resumed)
        attempt.host, attempt.job = host, job
        host.run(job)
        self._context.observer.began(instruction.attempt_id)

    def finished(self, instance: SimInstance, jobs: Sequence[SimJob]) -> None:
        """As ``InstanceOwner.finished``."""
        self.post(*(self._end_of(instance, job) for job in jobs))

    def _end_of(self, instance: SimInstance, job: SimJob) -> e.AttemptFinished:
        attempt_id, duty = job.attempt_id, job.duty
        run_s = self.engine.now_s - job.sent_s
        attempt = self.transfers.attempts.get(attempt_id)
        failure = self._context.observer.spoils(attempt_id)
        if failure is not None or attempt is None:
            usage = e.AttemptUsage(run_s=run_s)
            return e.AttemptFinished(instance.id, attempt_id, failure, usage=usage)
        outputs, inline = self._context.duties.outputs(job.assignment, duty)
        attempt.outputs, attempt.inline = outputs, inline
        fits = not attempt.upload_bytes()
        return e.AttemptFinished(
            instance.id,
            attempt_id,
            keeps_files=not fits,
            outputs=outputs if fits else None,
            inline=inline if fits else {},
            usage=e.AttemptUsage(
                run_s, duty.units, duty.tokens_in, duty.tokens_out, 0.0, duty.peak_mib
            ),
        )

    def _start_standby(self, instruction: i.StartStandby) -> None:
        took_s = self._context.duties.process_s * self._worker.slow
        ready = e.StandbyReady(instruction.host_id)
        self._standby[instruction.host_id] = self.engine.after(took_s, self.post, ready)

    # -- timers and energy -----------------------------------------------------------------------

    def _set_timer(self, instruction: i.SetTimer) -> None:
        key = instruction.timer
        cancel(self._timers.get(key))
        self._timers[key] = self.engine.at(instruction.at_s, self._timer_fired, key)

    def _timer_fired(self, key: e.TimerKey) -> None:
        del self._timers[key]
        self.post(e.TimerFired(key))

    def begin(self, attempt_id: str) -> None:
        """As ``EnergyCounter.begin``: hosts count by themselves."""

    def end(self, attempt_id: str) -> tuple[float, bool]:
        """As ``EnergyCounter.end``."""
        attempt = self.transfers.attempts.get(attempt_id)
        if attempt is None or attempt.host is None or attempt.job is None:
            return 0.0, False
        return attempt.host.batch.joules_of(attempt.job), False


def _nothing(_: Any) -> None:
    """Does nothing: the instruction has no counterpart here."""
