"""A simulated engine host: it starts, loads, runs attempts side by side, and ends.

All attempts of a lane advance together: the lane counts the steps it has made, an attempt ends when
its own have been made since it began. Continuous batching is the rate of that count: more sequences
make a step longer, and a full cache or batch makes each sequence wait its turn. An attempt that
comes or goes changes the rate at once.
"""

from collections import Counter
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.messages import Assignment, EngineInstanceState, FailureReport
from flowmesh_core.units import Digest
from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.models.devices import Device, LanguageModel
from flowmesh_sim.models.work_model import SERVING, TRAINING, WorkItem

_serial = count()
OOM_AFTER_S = 2.0
"""After so long an attempt that needs more memory than its lane has runs out of it."""
_PAST = 1e-9


@dataclass(slots=True, eq=False)
class SimJob:
    """An attempt on its way through a lane.

    Attributes:
        mark: the lane's count when it began, ``joules_mark`` its energy per weight then.
        left: steps that it makes, what a checkpoint saves left out.
    """

    assignment: Assignment
    duty: WorkItem
    left: float
    number: int
    queued_s: float = 0.0
    sent_s: float = 0.0
    load_s: float = 0.0
    mark: float = 0.0
    joules_mark: float = 0.0
    joules: float = 0.0
    lane: "SimInstance | None" = None
    abandoned: bool = False
    resumed: float = 0.0

    @property
    def weight(self) -> float:
        """Its part of what the lane does at once."""
        return self.duty.sequences or 1.0


class InstanceOwner(Protocol):
    """What a lane asks of its worker."""

    engine: Environment

    def lane_changed(self, lane: "SimInstance") -> None:
        """Its state has changed, or it is idle, or gone."""
        ...

    def job_phase(self, job: SimJob, phase: str) -> None:
        """A job is ``loading``, ``queued`` or ``running``."""
        ...

    def job_ended(self, job: SimJob, failure: FailureReport | None) -> None:
        """A job has ended."""
        ...

    def replan(self) -> None:
        """What runs has changed: every rate is worked out anew."""
        ...


class SimInstance:
    """One host: ``starting``, ``loading``, ``ready``, then ``closing``, and gone."""

    def __init__(
        self,
        owner: InstanceOwner,
        assignment: Assignment,
        *,
        device: Device,
        model: LanguageModel | None,
        on: tuple[int, ...],
        capacity: int,
    ) -> None:
        """Takes its worker, the attempt that it is opened for, and what it owns.

        Args:
            owner: its worker.
            assignment: the first attempt.
            device: the class of device.
            model: what it loads; None for an engine without a model.
            on: the devices it owns; none for a host on the CPU.
            capacity: attempts at once.
        """
        self._owner = owner
        self.device = device
        self.model = model
        self.on = on
        self.signature = assignment.signature
        self.name = assignment.engine
        self.memory_mib = assignment.memory_mib
        self.isolated_for = assignment.attempt_id if assignment.isolate else ""
        self.loaded: tuple[Digest, ...] = ()
        self.state = "starting"
        self.capacity = 1
        self._capacity = capacity
        self.load_s = 0.0
        self.last_used_s = owner.engine.now_s
        self.gone = False
        self.running: dict[str, SimJob] = {}
        self.kept: set[str] = set()
        self.steps = 0.0
        self.rate = 0.0
        self.joules_per_weight = 0.0
        self.watts_per_weight = 0.0
        self._advanced_s = owner.engine.now_s
        self._queue: list[tuple[int, int, SimJob]] = []
        self._ends: list[tuple[float, int, SimJob]] = []
        self._weight = 0.0
        self._kinds = Counter[str]()
        self._timer: Timer | None = None
        self._start: Timer | None = None

    # -- what it is ------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether it holds nothing and could be closed."""
        return self.state == "ready" and not (self.running or self.kept or self.waiting())

    def waiting(self) -> bool:
        """Whether anything waits for a place."""
        return any(not job.abandoned for _, _, job in self._queue)

    def report(self) -> EngineInstanceState:
        """What the control plane is told."""
        return EngineInstanceState(
            self.signature, self.name, self.state, self.capacity, self.memory_mib, self.load_s
        )

    # -- life ------------------------------------------------------------------------------------

    def open(self, start_s: float, load_s: float, loaded: tuple[Digest, ...]) -> None:
        """Starts the process, which loads and is then ready."""
        self.loaded = loaded
        self._start = self._owner.engine.after(start_s, self._begin_loading, start_s, load_s)

    def _begin_loading(self, start_s: float, load_s: float) -> None:
        self.state = "loading"
        self._start = self._owner.engine.after(load_s, self._ready, start_s + load_s)
        self._owner.lane_changed(self)

    def _ready(self, took_s: float) -> None:
        self.state, self.load_s, self.capacity = "ready", took_s, self._capacity
        now = self._owner.engine.now_s
        for _, _, job in self._queue:
            if not job.abandoned:
                job.load_s = now - job.queued_s
                self._owner.job_phase(job, "queued")
        self._pump()
        self._owner.lane_changed(self)

    def close(self, unload_s: float) -> None:
        """Ends the host in peace; it must be idle."""
        if self.state != "closing":
            self.state = "closing"
            self._owner.engine.after(unload_s, self._exit, None)
            self._owner.lane_changed(self)

    def end(self, failure: FailureReport) -> None:
        """Ends the host at once: what runs fails, what waits is placed again once it had loaded."""
        if not self.gone:
            self._exit(failure)

    def _exit(self, failure: FailureReport | None) -> None:
        if self.gone:
            return
        had_loaded = bool(self.load_s)
        self.advance()
        self.gone, self.state = True, "closing"
        cancel(self._timer)
        cancel(self._start)
        failed = list(self.running.values())
        left = [job for _, _, job in sorted(self._queue) if not job.abandoned]
        self.running, self._queue, self._ends = {}, [], []
        self.kept.clear()
        if not had_loaded:
            failed, left = [*failed, *left], []
        for job in left:
            job.lane = None
        self._owner.replan()
        self._owner.lane_changed(self)
        report = failure or FailureReport(FailureKind.HOST_CRASHED, "the host ended")
        for job in failed:
            self._owner.job_ended(job, report)
        for job in left:
            self._owner.job_phase(job, "again")

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, job: SimJob) -> None:
        """Takes a job: runs it as soon as there is a place."""
        job.lane = self
        self.last_used_s = self._owner.engine.now_s
        self._owner.job_phase(job, "queued" if self.state == "ready" else "loading")
        heappush(self._queue, (-job.assignment.priority, next(_serial), job))
        self._pump()

    def abandon(self, job: SimJob) -> None:
        """Stops a job that nobody waits for."""
        if job.abandoned:
            return
        job.abandoned = True
        attempt_id = job.assignment.attempt_id
        if attempt_id in self.running:
            self.advance()
            self._leave(job)
            self._pump()
            self._owner.replan()
        elif attempt_id in self.kept:
            self.kept.discard(attempt_id)
        self._owner.lane_changed(self)

    def release(self, attempt_id: str) -> None:
        """The outputs of an attempt are stored; the host may close."""
        if attempt_id in self.kept:
            self.kept.discard(attempt_id)
            if not self.running:
                self._owner.lane_changed(self)

    def _pump(self) -> None:
        began = False
        while self.state == "ready" and self._queue and len(self.running) < self.capacity:
            job = heappop(self._queue)[2]
            if job.abandoned:
                continue
            if not began:
                self.advance()
                began = True
            self._begin(job)
        if began:
            self._owner.replan()

    def _begin(self, job: SimJob) -> None:
        job.sent_s = self._owner.engine.now_s
        job.mark, job.joules_mark = self.steps, self.joules_per_weight
        self.running[job.assignment.attempt_id] = job
        self._weight += job.weight
        self._kinds[job.duty.kind] += 1
        heappush(self._ends, (self.steps + job.left, job.number, job))
        self._owner.job_phase(job, "running")
        if self.on and job.duty.peak_mib > self.memory_mib * len(self.on):
            self._owner.engine.after(OOM_AFTER_S, self._out_of_memory, job)

    def _out_of_memory(self, job: SimJob) -> None:
        if job.assignment.attempt_id in self.running and not self.gone:
            self.end(
                FailureReport(
                    FailureKind.OUT_OF_MEMORY,
                    f"{self.name} needs {job.duty.peak_mib} MiB; its lane has {self.memory_mib}",
                )
            )

    def _leave(self, job: SimJob) -> None:
        if self.running.pop(job.assignment.attempt_id, None) is not None:
            self._weight -= job.weight
            self._kinds[job.duty.kind] -= 1
        job.joules = (self.joules_per_weight - job.joules_mark) * job.weight
        self.last_used_s = self._owner.engine.now_s

    def done(self, job: SimJob) -> float:
        """The share of a job's work that is done, in [0, 1]."""
        made = job.resumed * job.duty.steps + (self.steps - job.mark)
        return min(1.0, made / job.duty.steps) if job.duty.steps else 1.0

    # -- progress --------------------------------------------------------------------------------

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
        if self.state == "loading":
            return self.device.loading_w()
        if self._kinds[TRAINING]:
            return self.device.training_w()
        if self._kinds[SERVING]:
            return self.device.serving_w(self.sequences())
        return float(self.device.facts.context_w if self.loaded else self.device.facts.idle_w)

    def _arm(self) -> None:
        while self._ends and self._ends[0][2].assignment.attempt_id not in self.running:
            heappop(self._ends)
        if not self._ends or self.rate <= 0.0:
            cancel(self._timer)
            self._timer = None
            return
        at_s = self._owner.engine.now_s + max(0.0, self._ends[0][0] - self.steps) / self.rate
        if self._timer is not None and self._timer[2] is not None and self._timer[0] == at_s:
            return
        cancel(self._timer)
        self._timer = self._owner.engine.at(at_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.advance()
        near = _PAST * max(1.0, self.steps)
        ended = []
        while self._ends and self._ends[0][0] <= self.steps + near:
            job = heappop(self._ends)[2]
            if job.assignment.attempt_id in self.running:
                self._leave(job)
                self.kept.add(job.assignment.attempt_id)
                ended.append(job)
        self._pump()
        self._owner.replan()
        for job in ended:
            self._owner.job_ended(job, None)
        if not self.running:
            self._owner.lane_changed(self)
