"""Estimates how long recorded actions take alone, beside others and on other devices.

The shipped cost model is trained with the recording. A recorded action takes its own recorded time
without the slowdown by the actions beside it; on another device class that time is scaled by the
ratio of the model's priors. If the replay asks for predictions, the time is the model's prediction.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from flowmesh_api.v1.trace import AttemptRecord, EngineRecord
from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.units import Digest

MADE = frozenset({"published", "adopted"})


@dataclass(frozen=True, slots=True)
class DurationFit:
    """The duration of an action on a device class.

    Attributes:
        alone_s: seconds without other actions in its engine instance.
        beside: the share of that time that each other action in its instance adds.
    """

    alone_s: float
    beside: float


class RecordedDurations:
    """Durations of recorded actions, fitted to the recording.

    Attributes:
        model: the trained cost model.
    """

    def __init__(self, engines: Iterable[EngineRecord]) -> None:
        """Starts untrained; the engines give the units of work."""
        self._units = {e.name: e.work_unit for e in engines}
        self.model = CostModel()
        self._prior = CostModel()
        self._loads: dict[tuple[str, str], float] = {}

    def train(self, attempts: Iterable[tuple[str, AttemptRecord]]) -> None:
        """Trains with attempts, each with its engine, in the order of their ends."""
        ended = sorted(
            {a.attempt: (e, a) for e, a in attempts if a.outcome in MADE}.values(),
            key=lambda x: x[1].ended_s,
        )
        batches = batches_of([a for _, a in ended])
        for engine, a in ended:
            key, work = self.key(engine, a.signature), self.work(engine, a)
            batch = batches[a.attempt]
            self.model.observe(key, work, a.run_s, a.load_s, a.device_class, batch=batch)
            place = (a.signature, a.device_class)
            self._loads[place] = max(self._loads.get(place, 0.0), a.load_s)

    def key(self, engine: str, signature: str) -> CostKey:
        """Returns the cost model's key of a signature."""
        return CostKey(engine, Digest(signature), self._units.get(engine, "rows"))

    def work(self, engine: str, a: AttemptRecord) -> WorkSize:
        """Returns the size of an attempt's work."""
        if self._units.get(engine) == "tokens":
            return WorkSize(a.units, a.tokens_in, a.tokens_out, 0, a.component_bytes)
        return WorkSize(float(max(1, a.units)), 0.0, 0.0, 0, a.component_bytes)

    def recorded(
        self, engine: str, a: AttemptRecord, device_class: str, batch: float
    ) -> DurationFit:
        """Returns the duration of an attempt as recorded, with this mean batch."""
        recorded_beside = self._beside(engine, a, a.device_class)
        alone_s = (a.run_s + a.put_s) / (1.0 + recorded_beside * (batch - 1.0))
        if device_class == a.device_class:
            return DurationFit(alone_s, recorded_beside)
        key, work = self.key(engine, a.signature), self.work(engine, a)
        new_s = self._prior.predict(key, device_class, work).seconds
        recorded_s = self._prior.predict(key, a.device_class, work).seconds
        return DurationFit(alone_s * new_s / recorded_s, self._beside(engine, a, device_class))

    def predicted(self, engine: str, a: AttemptRecord, device_class: str) -> DurationFit:
        """Returns the duration that the cost model predicts for an attempt's work."""
        key, work = self.key(engine, a.signature), self.work(engine, a)
        alone_s = self.model.predict(key, device_class, work).seconds
        return DurationFit(alone_s + a.put_s, self._beside(engine, a, device_class))

    def _beside(self, engine: str, a: AttemptRecord, device_class: str) -> float:
        key, work = self.key(engine, a.signature), self.work(engine, a)
        alone_s = self.model.predict(key, device_class, work, batch=1.0).seconds
        both_s = self.model.predict(key, device_class, work, batch=2.0).seconds
        return min(1.0, max(0.0, both_s / alone_s - 1.0))

    def load_s(self, engine: str, a: AttemptRecord, device_class: str) -> float:
        """Returns the seconds until a host of an attempt's signature is loaded."""
        seen = self._loads.get((a.signature, device_class), 0.0)
        if seen:
            return seen
        return self.model.load_s(self.key(engine, a.signature), device_class, a.component_bytes)


def batches_of(attempts: list[AttemptRecord]) -> dict[str, float]:
    """Returns the mean number of attempts in the same engine instance, itself included."""
    instances: dict[tuple[str, str], list[AttemptRecord]] = defaultdict(list)
    for a in attempts:
        instances[a.worker, a.signature].append(a)
    found: dict[str, float] = {}
    for together in instances.values():
        spans = [(max(0.0, a.ended_s - a.put_s - a.run_s), a.ended_s - a.put_s) for a in together]
        means = zip(together, _overlaps(spans), strict=True)
        found.update((a.attempt, mean) for a, mean in means)
    return found


def _overlaps(spans: list[tuple[float, float]]) -> list[float]:
    """Returns for each span the mean number of spans that are open during it."""
    times: list[float] = []
    for begin, end in spans:
        for time_s in (begin, end):
            if (place := bisect_left(times, time_s)) == len(times) or times[place] != time_s:
                insort(times, time_s)
    steps = [0] * (len(times) + 1)
    for begin, end in spans:
        steps[bisect_left(times, begin)] += 1
        steps[bisect_left(times, end)] -= 1
    area, open_now, sums = 0.0, 0, [0.0]
    for n in range(len(times) - 1):
        open_now += steps[n]
        area += open_now * (times[n + 1] - times[n])
        sums.append(area)
    return [
        (sums[bisect_left(times, e)] - sums[bisect_left(times, b)]) / (e - b) if e > b else 1.0
        for b, e in spans
    ]
