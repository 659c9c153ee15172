"""Attempts that run side by side in a simulated host: their speed and their power.

All jobs of a batch advance together: the batch counts steps, and a job ends when as many as it
needs have been made since it began. Continuous batching is the rate of that count: more sequences
make a step longer, and a full cache or batch makes each sequence wait its turn. A job that begins
or ends changes the rate at once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from flowmesh_core.protocol.messages import Assignment
from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.models.devices import Device, LanguageModel
from flowmesh_sim.models.work_model import SERVING, TRAINING, WorkItem

_PAST = 1e-9


@dataclass(slots=True, eq=False)
class SimJob:
    """An attempt in its host.

    Attributes:
        left: steps to make, without those that a checkpoint saves.
        number: orders jobs that end at the same time.
        resumed: share of the work that a checkpoint saves, in [0, 1].
        mark: the batch's steps when it began; ``joules_mark`` its energy per weight then.
        joules: energy that it used, known once it has ended.
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
        """Its share of the batch's power, relative to other jobs."""
        return self.duty.sequences or 1.0


class Batch:
    """The jobs of one host.

    Attributes:
        running: by attempt id.
        steps: made so far, at ``rate`` a second.
    """

    def __init__(
        self,
        engine: Environment,
        device: Device,
        model: LanguageModel | None,
        memory_mib: int,
        finished: Callable[[list[SimJob]], None],
    ) -> None:
        """Runs nothing yet.

        Args:
            engine: virtual time.
            device: the class of device.
            model: the loaded one; None for an engine without a model.
            memory_mib: reserved by the host, on all its devices together.
            finished: called with jobs that have made all their steps; they are removed before.
        """
        self._engine = engine
        self._device = device
        self._model = model
        self._memory_mib = memory_mib
        self._finished = finished
        self.running: dict[str, SimJob] = {}
        self.steps = 0.0
        self.rate = 0.0
        self._joules_per_weight = 0.0
        self._watts_per_weight = 0.0
        self._advanced_s = engine.now_s
        self._ends: list[tuple[float, int, SimJob]] = []
        self._weight = 0.0
        self._kinds = Counter[str]()
        self._timer: Timer | None = None

    def add(self, job: SimJob) -> None:
        """Begins a job."""
        self.advance()
        job.mark, job.joules_mark = self.steps, self._joules_per_weight
        self.running[job.attempt_id] = job
        self._weight += job.weight
        self._kinds[job.duty.kind] += 1
        heappush(self._ends, (self.steps + job.left, job.number, job))

    def remove(self, job: SimJob) -> None:
        """Ends a job, complete or not."""
        self.advance()
        job.joules = (self._joules_per_weight - job.joules_mark) * job.weight
        del self.running[job.attempt_id]
        self._weight -= job.weight
        self._kinds[job.duty.kind] -= 1

    def stop(self) -> None:
        """Ends all jobs."""
        for job in list(self.running.values()):
            self.remove(job)
        self._ends.clear()
        cancel(self._timer)

    def joules_of(self, job: SimJob) -> float:
        """Returns the energy that a job has used so far."""
        if job.attempt_id not in self.running:
            return job.joules
        self.advance()
        return (self._joules_per_weight - job.joules_mark) * job.weight

    def done(self, job: SimJob) -> float:
        """Returns the share of a job's work that is done, in [0, 1]."""
        made = job.resumed * job.duty.steps + (self.steps - job.mark)
        return min(1.0, made / job.duty.steps) if job.duty.steps else 1.0

    def advance(self) -> None:
        """Counts steps and energy since the last call."""
        now = self._engine.now_s
        passed = now - self._advanced_s
        self._advanced_s = now
        if passed > 0.0 and self.running:
            self.steps += self.rate * passed
            self._joules_per_weight += self._watts_per_weight * passed

    def sequences(self) -> float:
        """Returns how many sequences run at once: those that fit."""
        wanted = sum(j.duty.sequences for j in self.running.values())
        if not wanted or self._model is None:
            return 0.0
        context = sum(j.duty.sequences * j.duty.context for j in self.running.values()) / wanted
        cache_tokens = self._device.kv_tokens(self._model, self._memory_mib)
        most = min(self._device.sequences_max, cache_tokens / max(1.0, context))
        return min(wanted, max(1.0, most))

    def plan(self, share: float, slow: float, watts: float) -> None:
        """Sets its share of the device and its power, and when the next job ends.

        Args:
            share: of the device, in (0, 1].
            slow: factor by which everything takes longer now.
            watts: its power.
        """
        if not self.running:  # drops rounding errors of sums
            self._weight = 0.0
            self._kinds.clear()
        self.rate = share / slow
        beside = max((j.duty.beside for j in self.running.values()), default=0.0)
        if beside:
            self.rate /= 1.0 + beside * (len(self.running) - 1)
        if self._model is not None and self._kinds[SERVING]:
            self.rate *= self._steps_per_s()
        self._watts_per_weight = watts / self._weight if self.running else 0.0
        self._arm()

    def _steps_per_s(self) -> float:
        assert self._model is not None
        jobs = [j for j in self.running.values() if j.duty.kind == SERVING]
        wanted = sum(j.duty.sequences for j in jobs)
        at_once = self.sequences()
        context = sum(j.duty.sequences * j.duty.context for j in jobs) / wanted
        turn = at_once / wanted
        step_s = self._device.decode_step_s(self._model, at_once, context)
        step_s += turn * sum(j.duty.prefill_s for j in jobs)
        return turn / step_s

    def watts(self) -> float:
        """Returns the device's power while this runs alone on it; 0 if no job adds to it."""
        if self._kinds[TRAINING]:
            return self._device.training_w()
        if self._kinds[SERVING]:
            return self._device.serving_w(self.sequences())
        return 0.0

    def _arm(self) -> None:
        while self._ends and self._ends[0][2].attempt_id not in self.running:
            heappop(self._ends)
        if not self._ends or self.rate <= 0.0:
            cancel(self._timer)
            self._timer = None
            return
        at_s = self._engine.now_s + max(0.0, self._ends[0][0] - self.steps) / self.rate
        if self._timer is not None and self._timer[0] == at_s:
            return
        cancel(self._timer)
        self._timer = self._engine.at(at_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.advance()
        near = _PAST * max(1.0, self.steps)
        ended = []
        while self._ends and self._ends[0][0] <= self.steps + near:
            job = heappop(self._ends)[2]
            if job.attempt_id in self.running:
                self.remove(job)
                ended.append(job)
        self._finished(ended)
