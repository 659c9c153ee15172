"""The account of the gap to the bound: where the dollars and the seconds go.

Dollars: what every worker does in each second that is paid for, at its price. Of the seconds in
which it runs attempts, the bound pays for every action once, in a full batch, on its cheapest
class. Seconds: what happens to each run from its submission to its verdict. The bound's run waits
for nothing, alone on the fastest class.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from flowmesh_core.machine.events import ActionKey
from flowmesh_sim.models.devices import HardwareCatalog
from flowmesh_sim.models.work_model import HOST, WorkModel
from flowmesh_sim.paper.bound import (
    HOUR_S,
    LowerBoundInput,
    full_s,
    lone_s,
    zero_wait_runs,
)
from flowmesh_sim.placement_evaluation.observer import PlacementObserver, Span
from flowmesh_sim.workers.worker import IDLE, RUN, START, SimWorker


@dataclass(frozen=True, slots=True)
class DollarGap:
    """The parts of the bill above the bound, in dollars; together they are the gap.

    Attributes:
        idle: of workers that do nothing; ``worker_starts`` until their agents run.
        downloads: while nothing else is done; ``engine_starts`` while nothing runs.
        unbatched: what running costs above every action once in full batches, on those devices.
        wrong_device: what full batches cost above those on the cheapest class.
    """

    idle: float
    worker_starts: float
    downloads: float
    engine_starts: float
    unbatched: float
    wrong_device: float


@dataclass(frozen=True, slots=True)
class SecondsGap:
    """The parts of the latencies above the bound, in seconds of all runs together.

    Attributes:
        worker_starts: while there is no worker at all; ``downloads`` and ``engine_starts`` while
            nothing of the run runs; ``waiting`` for a place, for messages and for records.
        wrong_device: what its actions take alone on their devices above the fastest class.
        shared_device: what running takes above that, since devices are shared.
    """

    worker_starts: float
    downloads: float
    engine_starts: float
    waiting: float
    wrong_device: float
    shared_device: float


def covered_s(spans: Iterable[Span]) -> float:
    """Returns the seconds in which at least one of the spans is."""
    total_s, until_s = 0.0, -inf
    for begin_s, end_s in sorted(spans):
        total_s += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


def successive_s(*layers: Sequence[Span]) -> list[float]:
    """Returns for each layer the seconds in which it is, and none of the layers before it."""
    found: list[float] = []
    below: list[Span] = []
    for layer in layers:
        below += layer
        found.append(covered_s(below) - sum(found))
    return found


@dataclass(frozen=True, slots=True)
class PaidTime:
    """What a worker did while it was paid for, in seconds."""

    agent_s: float
    running_s: float
    starting_s: float
    fetching_s: float
    idle_s: float


def paid_time(worker: SimWorker, end_s: float) -> PaidTime:
    """Returns what a worker did until this moment."""
    moments = [*worker.activity, (end_s, IDLE)]
    spans: dict[str, list[Span]] = {RUN: [], START: [], IDLE: []}
    for (begin_s, activity), (next_s, _) in pairwise(moments):
        spans[activity].append((begin_s, min(next_s, end_s)))
    fetches = [(b, min(e, end_s)) for b, e in worker.disk.fetch_times() if b < end_s]
    life = [(worker.born_s, end_s)]
    running, starting, fetching, idle = successive_s(spans[RUN], spans[START], fetches, life)
    return PaidTime(worker.born_s - worker.billed_since_s, running, starting, fetching, idle)


class GapAccount:
    """Computes the account of one simulation.

    Attributes:
        bound_usd: the bill of the bound, and ``bound_s`` the latencies of its runs together.
    """

    def __init__(
        self,
        observer: PlacementObserver,
        least: Mapping[ActionKey, LowerBoundInput],
        hardware: HardwareCatalog,
        duties: WorkModel,
    ) -> None:
        """Reads the attempts.

        Args:
            observer: of the simulation.
            least: the minimum of every action over the fleet's classes.
            hardware: the constants.
            duties: the work of an assignment.
        """
        self._observer = observer
        self._least = {key: replace(x, ready_s=0.0) for key, x in least.items()}
        self._hardware = hardware
        self._duties = duties
        self._workers = {w.name: w for w in observer.workers}
        self.bound_usd = sum(x.usd for x in least.values())
        self.bound_s = 0.0

    def dollars(self, paid_until_s: Mapping[str, float]) -> DollarGap:
        """Returns the parts of the bill above the bound.

        Args:
            paid_until_s: of every worker, by its name.
        """
        totals = [0.0] * 5
        for worker in self._workers.values():
            paid = paid_time(worker, paid_until_s[worker.name])
            price = _price_usd_s(worker)
            parts = (paid.agent_s, paid.running_s, paid.starting_s, paid.fetching_s, paid.idle_s)
            totals = [total + price * part for total, part in zip(totals, parts, strict=True)]
        agent, running, starting, fetching, idle = totals
        once = self._full_batches()
        return DollarGap(
            idle=idle,
            worker_starts=agent,
            downloads=fetching,
            engine_starts=starting,
            unbatched=running - once,
            wrong_device=once - self.bound_usd,
        )

    def _full_batches(self) -> float:
        """Returns what every action costs once in full batches, on the device where it ran."""
        found: dict[ActionKey, float] = {}
        for attempt_id, times in self._observer.attempts.items():
            a, worker = self._observer.assignments[attempt_id], self._workers[times.worker]
            duty = self._duties.of(a, worker.device)
            if times.succeeded and duty.kind != HOST:
                seconds = full_s(worker.device, self._duties.model_of(a), duty)
                found.setdefault(times.action, seconds * _price_usd_s(worker))
        return sum(found.values())

    def seconds(self, submitted_s: Mapping[str, float], ended_s: Mapping[str, float]) -> SecondsGap:
        """Returns the parts of the latencies above the bound."""
        by_action: dict[ActionKey, list[str]] = {}
        for attempt_id, times in self._observer.attempts.items():
            by_action.setdefault(times.action, []).append(attempt_id)
        alive = [(w.born_s, w.left_s if w.gone else inf) for w in self._workers.values()]
        totals = [0.0] * 5
        for uid, steps in self._observer.traces.items():
            keys = {key for step in steps for key in step.actions}
            ran = [self._observer.attempts[i] for key in keys for i in by_action.get(key, ())]
            life = (submitted_s[uid], ended_s[uid])
            layers = [
                [t.running for t in ran],
                [t.loading for t in ran],
                [t.fetching for t in ran],
                _outside(alive, life),
                [life],
            ]
            parts = successive_s(*([_clipped(span, life) for span in layer] for layer in layers))
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
        running, loading, fetching, without_worker, waiting = totals
        self.bound_s = self._zero_wait_s(self._least, submitted_s)
        on_device_s = self._zero_wait_s(self._where_they_ran(), submitted_s)
        return SecondsGap(
            worker_starts=without_worker,
            downloads=fetching,
            engine_starts=loading,
            waiting=waiting,
            wrong_device=on_device_s - self.bound_s,
            shared_device=running - on_device_s,
        )

    def _zero_wait_s(
        self, least: Mapping[ActionKey, LowerBoundInput], submitted_s: Mapping[str, float]
    ) -> float:
        runs = zero_wait_runs(least, self._observer.traces, submitted_s)
        return sum(run.end_s - run.start_s for run in runs)

    def _where_they_ran(self) -> dict[ActionKey, LowerBoundInput]:
        found = dict(self._least)
        for attempt_id, times in self._observer.attempts.items():
            if times.succeeded and times.action in found:
                a, device = (
                    self._observer.assignments[attempt_id],
                    self._workers[times.worker].device,
                )
                alone_s = lone_s(device, self._duties.model_of(a), self._duties.of(a, device))
                found[times.action] = replace(found[times.action], alone_s=alone_s)
        return found


def _price_usd_s(worker: SimWorker) -> float:
    return worker.shape.price_nanousd_per_hour / 1e9 / HOUR_S


def _clipped(span: Span, life: Span) -> Span:
    begin_s = min(max(span[0], life[0]), life[1])
    return begin_s, max(begin_s, min(span[1], life[1]))


def _outside(spans: Sequence[Span], life: Span) -> list[Span]:
    """Returns the parts of a life in which none of the spans is."""
    found, until_s = [], life[0]
    for begin_s, end_s in sorted(spans):
        if begin_s > until_s:
            found.append((until_s, min(begin_s, life[1])))
        until_s = max(until_s, end_s)
    found.append((until_s, max(until_s, life[1])))
    return [span for span in found if span[0] < span[1] and span[0] < life[1]]
