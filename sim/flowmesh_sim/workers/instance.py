"""A simulated engine host: it starts, loads, runs attempts side by side, and ends.

It is the physics of an engine instance: what it runs, and when it closes, the worker agent decides.
All attempts of an instance advance together: the instance counts the steps it has made, an attempt
ends when its own have been made since it began. Continuous batching is the rate of that count: more
sequences make a step longer, and a full cache or batch makes each sequence wait its turn. An
attempt that comes or goes changes the rate at once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, FailureReport
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import (
    AttemptFinished,
    AttemptProgressed,
    AttemptUsage,
    CheckpointStored,
    Event,
    HostExited,
    HostLoaded,
    HostLoadFailed,
    HostStarted,
)
from flowmesh_core.worker_agent.memory import Reservation
from flowmesh_core.worker_agent.transitions import InstanceState
from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.models.devices import Device, LanguageModel
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.models.work_model import SERVING, TRAINING, WorkItem
from flowmesh_sim.workers.checkpoints import write_checkpoint

OOM_AFTER_S = 2.0
"""After so long an attempt that needs more memory than its instance has runs out of it."""
_PAST = 1e-9
_ENDED = FailureReport(FailureKind.HOST_CRASHED.value, "the host ended")
_CANCELLED = FailureReport(FailureKind.CANCELLED.value, "the attempt was stopped")
_HANDED_BACK = FailureReport(
    FailureKind.DRAINED.value, "stopped between two steps, as its worker leaves"
)


@dataclass(slots=True, eq=False)
class SimJob:
    """An attempt in its host.

    Attributes:
        left: steps that it makes, what a checkpoint saves left out.
        number: orders jobs that end at the same moment.
        resumed: share of the work that a checkpoint saves.
        mark: the instance's count when it began, ``joules_mark`` its energy per weight then.
        joules: what it has drawn, once it has left the instance.
    """

    assignment: Assignment
    duty: WorkItem
    left: float
    number: int
    sent_s: float
    resumed: float = 0.0
    mark: float = 0.0
    joules_mark: float = 0.0
    joules: float = 0.0

    @property
    def attempt_id(self) -> str:
        """The attempt's id."""
        return self.assignment.attempt_id

    @property
    def weight(self) -> float:
        """Its part of what the instance does at once."""
        return self.duty.sequences or 1.0


class InstanceOwner(Protocol):
    """What an instance needs of its worker."""

    @property
    def engine(self) -> Environment:
        """Virtual time."""
        ...

    def changed(self) -> None:
        """What runs or draws power has changed: the next ``post`` plans all instances anew."""
        ...

    def post(self, *events: Event) -> None:
        """Gives events to the worker agent."""
        ...

    def finished(self, instance: "SimInstance", jobs: Sequence[SimJob]) -> None:
        """Jobs have done all their work."""
        ...


class SimInstance:
    """One host. Its state is the physical one, which the worker agent knows by its events.

    Attributes:
        on: devices that it owns; none for a host on the CPU.
        loaded: components in its memory.
        running: jobs by attempt.
    """

    def __init__(
        self,
        owner: InstanceOwner,
        store: SimStore,
        instance_id: int,
        engine: str,
        reservation: Reservation,
        *,
        device: Device,
        model: LanguageModel | None,
        capacity: int,
    ) -> None:
        """Starts nothing yet.

        Args:
            owner: its worker.
            store: where checkpoints go.
            instance_id: in its events.
            engine: its name.
            reservation: memory, and devices.
            device: the class of device.
            model: what it loads; None for an engine without a model.
            capacity: attempts at once.
        """
        self._owner = owner
        self._store = store
        self.id = instance_id
        self.name = engine
        self.device = device
        self.model = model
        self.on = reservation.devices
        self.memory_mib = reservation.memory_mib
        self.capacity = capacity
        self.loaded: tuple[Digest, ...] = ()
        self.state = InstanceState.STARTING
        self.running: dict[str, SimJob] = {}
        self.steps = 0.0
        self.rate = 0.0
        self.joules_per_weight = 0.0
        self.watts_per_weight = 0.0
        self._advanced_s = owner.engine.now_s
        self._ends: list[tuple[float, int, SimJob]] = []
        self._weight = 0.0
        self._kinds = Counter[str]()
        self._timer: Timer | None = None
        self._start: Timer | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.state is InstanceState.GONE

    # -- life ------------------------------------------------------------------------------------

    def start(self, start_s: float, load_s: float, loaded: tuple[Digest, ...]) -> None:
        """Starts the process, which loads and is then ready."""
        self.loaded = loaded
        self._start = self._owner.engine.after(start_s, self._load, start_s, load_s)

    def refuse(self, after_s: float, failure: FailureReport) -> None:
        """Has the engine find after so long that it cannot load; its process ends then."""
        self._owner.engine.after(after_s, self._refused, failure)

    def _load(self, start_s: float, load_s: float) -> None:
        self.state = InstanceState.LOADING
        self._owner.changed()
        self._start = self._owner.engine.after(load_s, self._ready, start_s + load_s)
        self._owner.post(HostStarted(self.id))

    def _ready(self, took_s: float) -> None:
        self.state = InstanceState.READY
        self._owner.changed()
        self._owner.post(HostLoaded(self.id, self.capacity, took_s))

    def _refused(self, failure: FailureReport) -> None:
        if not self.has_ended:
            self._owner.post(HostLoadFailed(self.id, failure))
            self.exit(failure)

    def close(self, unload_s: float) -> None:
        """Ends the host in peace."""
        if not self.has_ended:
            self.state = InstanceState.CLOSING
            self._owner.engine.after(unload_s, self.exit)

    def exit(self, failure: FailureReport = _ENDED) -> None:
        """Ends the host at once, with all that runs in it."""
        if not self.has_ended:
            self.stop()
            self._owner.post(HostExited(self.id, failure))

    def stop(self) -> None:
        """Ends the host without an event: its worker's process may be gone too."""
        self.advance()
        for job in list(self.running.values()):
            self._leave(job)
        self.state = InstanceState.GONE
        self._owner.changed()
        self._ends.clear()
        cancel(self._timer)
        cancel(self._start)

    # -- attempts --------------------------------------------------------------------------------

    def run(self, job: SimJob) -> None:
        """Runs an attempt from now on."""
        self.advance()
        job.mark, job.joules_mark = self.steps, self.joules_per_weight
        self.running[job.attempt_id] = job
        self._weight += job.weight
        self._kinds[job.duty.kind] += 1
        self._owner.changed()
        heappush(self._ends, (self.steps + job.left, job.number, job))
        if self.on and job.duty.peak_mib > self.memory_mib * len(self.on):
            self._owner.engine.after(OOM_AFTER_S, self._out_of_memory, job)
        self._next_checkpoint(job)

    def cancel(self, attempt_id: str) -> None:
        """Stops an attempt at once; harmless for one that does not run."""
        job = self.running.get(attempt_id)
        if job is not None:
            self._end(job, _CANCELLED)

    def request_checkpoint(self, attempt_id: str) -> None:
        """Has an attempt write a checkpoint and end, where its engine can."""
        job = self.running.get(attempt_id)
        if job is not None and job.duty.ends_on_request:
            if job.duty.kind == TRAINING or job.duty.checkpoint_every:
                self._write_checkpoint(job)
            self._end(job, _HANDED_BACK)

    def progress(self) -> list[Event]:
        """How far everything is that runs."""
        self.advance()
        found: list[Event] = []
        for attempt_id, job in self.running.items():
            done = self.done(job)
            units = int(job.duty.units * done)
            found.append(AttemptProgressed(self.id, attempt_id, units, done, 1.0, "share"))
        return found

    def joules_of(self, job: SimJob) -> float:
        """What a job of this instance has drawn so far."""
        if job.attempt_id not in self.running:
            return job.joules
        self.advance()
        return (self.joules_per_weight - job.joules_mark) * job.weight

    def _end(self, job: SimJob, failure: FailureReport) -> None:
        self.advance()
        self._leave(job)
        usage = AttemptUsage(run_s=self._owner.engine.now_s - job.sent_s)
        self._owner.post(AttemptFinished(self.id, job.attempt_id, failure, usage=usage))

    def _leave(self, job: SimJob) -> None:
        job.joules = (self.joules_per_weight - job.joules_mark) * job.weight
        del self.running[job.attempt_id]
        self._owner.changed()
        self._weight -= job.weight
        self._kinds[job.duty.kind] -= 1

    def _out_of_memory(self, job: SimJob) -> None:
        if job.attempt_id in self.running:
            self.exit(
                FailureReport(
                    FailureKind.OUT_OF_MEMORY.value,
                    f"{self.name} needs {job.duty.peak_mib} MiB; its instance has "
                    f"{self.memory_mib} MiB",
                )
            )

    def _next_checkpoint(self, job: SimJob) -> None:
        every = job.duty.checkpoint_every
        if every:
            self._owner.engine.after(every * job.duty.steps, self._checkpoint, job)

    def _checkpoint(self, job: SimJob) -> None:
        if job.attempt_id in self.running:
            self._write_checkpoint(job)
            self._next_checkpoint(job)

    def _write_checkpoint(self, job: SimJob) -> None:
        self.advance()
        done = self.done(job)
        if done < 1.0 and not self._store.down:
            checkpoint = write_checkpoint(self._store, job.attempt_id, done)
            self._owner.post(CheckpointStored(checkpoint))

    # -- progress --------------------------------------------------------------------------------

    def done(self, job: SimJob) -> float:
        """The share of a job's work that is done, in [0, 1]."""
        made = job.resumed * job.duty.steps + (self.steps - job.mark)
        return min(1.0, made / job.duty.steps) if job.duty.steps else 1.0

    def advance(self) -> None:
        """Counts what was done since the last call."""
        now = self._owner.engine.now_s
        passed = now - self._advanced_s
        self._advanced_s = now
        if passed > 0.0 and self.running:
            self.steps += self.rate * passed
            self.joules_per_weight += self.watts_per_weight * passed

    def sequences(self) -> float:
        """Sequences that run at once, as many as fit."""
        wanted = sum(j.duty.sequences for j in self.running.values())
        if not wanted or self.model is None:
            return 0.0
        context = sum(j.duty.sequences * j.duty.context for j in self.running.values()) / wanted
        room = self.device.kv_tokens(self.model, self.memory_mib * max(1, len(self.on)))
        most = min(float(self.device.serving.sequences_max), room / max(1.0, context))
        return min(wanted, max(1.0, most))

    def plan(self, share: float, slow: float, watts: float) -> None:
        """Takes its share of the device and of the draw, and works out when the next job ends.

        Args:
            share: of the device, in (0, 1].
            slow: how many times longer everything takes now.
            watts: what it draws.
        """
        if not self.running:  # sums of fractions leave a trace otherwise
            self._weight = 0.0
            self._kinds.clear()
        self.rate = share / slow
        beside = max((j.duty.beside for j in self.running.values()), default=0.0)
        if beside:
            self.rate /= 1.0 + beside * (len(self.running) - 1)
        if self.model is not None and self._kinds[SERVING]:
            self.rate *= self._steps_per_s()
        self.watts_per_weight = watts / self._weight if self.running else 0.0
        self._arm()

    def _steps_per_s(self) -> float:
        assert self.model is not None
        jobs = [j for j in self.running.values() if j.duty.kind == SERVING]
        wanted = sum(j.duty.sequences for j in jobs)
        at_once = self.sequences()
        context = sum(j.duty.sequences * j.duty.context for j in jobs) / wanted
        turn = at_once / wanted
        step_s = self.device.decode_step_s(self.model, at_once, context)
        step_s += turn * sum(j.duty.prefill_s for j in jobs)
        return turn / step_s

    def watts(self) -> float:
        """What the device draws for it alone."""
        if self.state is InstanceState.LOADING:
            return self.device.loading_w()
        if self._kinds[TRAINING]:
            return self.device.training_w()
        if self._kinds[SERVING]:
            return self.device.serving_w(self.sequences())
        return float(self.device.facts.context_w if self.loaded else self.device.facts.idle_w)

    def _arm(self) -> None:
        while self._ends and self._ends[0][2].attempt_id not in self.running:
            heappop(self._ends)
        if not self._ends or self.rate <= 0.0:
            cancel(self._timer)
            self._timer = None
            return
        at_s = self._owner.engine.now_s + max(0.0, self._ends[0][0] - self.steps) / self.rate
        if self._timer is not None and self._timer[0] == at_s:
            return
        cancel(self._timer)
        self._timer = self._owner.engine.at(at_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._owner.changed()
        self.advance()
        near = _PAST * max(1.0, self.steps)
        ended = []
        while self._ends and self._ends[0][0] <= self.steps + near:
            job = heappop(self._ends)[2]
            if job.attempt_id in self.running:
                self._leave(job)
                ended.append(job)
        self._owner.finished(self, ended)
