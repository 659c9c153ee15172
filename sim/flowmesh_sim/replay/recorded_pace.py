"""How long recorded actions take elsewhere: alone, beside others, on other devices, predicted.

The shipped cost model is taught with what was recorded. Of an action that was recorded its own
time is taken, less what it took longer for the others beside it; on another class of device it is
scaled by the ratio of the model's priors. Of one that was not, or where it is asked for, the time
is the model's prediction.
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
    """What an action takes on a class of device.

    Attributes:
        alone_s: seconds with nothing beside it.
        beside: what each other action in its lane adds, as a share of that.
    """

    alone_s: float
    beside: float


class RecordedDurations:
    """Taught with attempts that gave results.

    Attributes:
        model: the cost model; others may predict with it.
    """

    def __init__(self, engines: Iterable[EngineRecord]) -> None:
        """Takes what engines count."""
        self._units = {e.name: e.work_unit for e in engines}
        self.model = CostModel()
        self._prior = CostModel()
        self._loads: dict[tuple[str, str], float] = {}

    def teach(self, attempts: Iterable[tuple[str, AttemptRecord]]) -> None:
        """Learns from attempts, each with its engine, in the order in which they ended."""
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
        """What the model knows a signature as."""
        return CostKey(engine, Digest(signature), self._units.get(engine, "rows"))

    def work(self, engine: str, a: AttemptRecord) -> WorkSize:
        """The size of an attempt's work."""
        if self._units.get(engine) == "tokens":
            return WorkSize(a.units, a.tokens_in, a.tokens_out, 0, a.component_bytes)
        return WorkSize(float(max(1, a.units)), 0.0, 0.0, 0, a.component_bytes)

    def recorded(
        self, engine: str, a: AttemptRecord, device_class: str, batch: float
    ) -> DurationFit:
        """Of an attempt as it was recorded, beside so many on average."""
        there = self._beside(engine, a, a.device_class)
        alone_s = (a.run_s + a.put_s) / (1.0 + there * (batch - 1.0))
        if device_class == a.device_class:
            return DurationFit(alone_s, there)
        key, work = self.key(engine, a.signature), self.work(engine, a)
        here_s = self._prior.predict(key, device_class, work).seconds
        there_s = self._prior.predict(key, a.device_class, work).seconds
        return DurationFit(alone_s * here_s / there_s, self._beside(engine, a, device_class))

    def predicted(self, engine: str, a: AttemptRecord, device_class: str) -> DurationFit:
        """Of an attempt's work, by what others of its kind took."""
        key, work = self.key(engine, a.signature), self.work(engine, a)
        alone_s = self.model.predict(key, device_class, work).seconds
        return DurationFit(alone_s + a.put_s, self._beside(engine, a, device_class))

    def _beside(self, engine: str, a: AttemptRecord, device_class: str) -> float:
        key, work = self.key(engine, a.signature), self.work(engine, a)
        alone_s = self.model.predict(key, device_class, work, batch=1.0).seconds
        both_s = self.model.predict(key, device_class, work, batch=2.0).seconds
        return min(1.0, max(0.0, both_s / alone_s - 1.0))

    def load_s(self, engine: str, a: AttemptRecord, device_class: str) -> float:
        """Seconds until a host of an attempt's signature takes work."""
        seen = self._loads.get((a.signature, device_class), 0.0)
        if seen:
            return seen
        return self.model.load_s(self.key(engine, a.signature), device_class, a.component_bytes)


def batches_of(attempts: list[AttemptRecord]) -> dict[str, float]:
    """How many of its signature ran on its worker on average while each attempt ran, itself too."""
    lanes: dict[tuple[str, str], list[AttemptRecord]] = defaultdict(list)
    for a in attempts:
        lanes[a.worker, a.signature].append(a)
    found: dict[str, float] = {}
    for lane in lanes.values():
        spans = [(max(0.0, a.ended_s - a.put_s - a.run_s), a.ended_s - a.put_s) for a in lane]
        found.update((a.attempt, mean) for a, mean in zip(lane, _overlaps(spans), strict=True))
    return found


def _overlaps(spans: list[tuple[float, float]]) -> list[float]:
    """Of each span, the mean number of spans that are open while it is."""
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
