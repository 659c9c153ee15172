"""What the replicas of services do, as their workers report it: the demand, and how fast they are.

The control plane passes every report; the meter keeps a minute of them. Demand is the work that
replicas do, so at a saturated service it is what they can do: it then asks for more replicas until
they keep up. Its speed is learned without the first slice in which an instance works: first calls
compile, allocate and fill caches.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.serving.plan.step_times import StepTimes
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.units import Digest

WINDOW_S = 60.0
"""The time over which demand is measured."""
SLICE_S = 10.0
"""The time of one observation: work is reported when a call ends, so it comes in portions."""
ENGINES_MAX = 1024
"""Engines, by signature and class of device, whose speed is remembered."""
_FEW_CALLS = 0.05
"""With fewer calls in the mean, an observation says more about reports than about the engine."""


class ReplicaReading(msgspec.Struct, frozen=True):
    """A report about one replica.

    Attributes:
        component: that it belongs to: the same value for all its replicas, of all releases.
        signature: of its engine instance; ``device_class`` of its worker.
        calls: calls in it now.
        units: work that its calls have done so far.
        calls_max: calls that run at once.
        call_s: seconds that the calls which did this work took; 0 from workers of older releases.
    """

    replica_id: str
    component: Hashable
    signature: Digest
    device_class: str
    calls: int
    units: int
    calls_max: int
    call_s: float = 0.0


@dataclass(slots=True)
class _Slice:
    """A replica since its last observation.

    Attributes:
        units: that it had done then; ``took_s`` the seconds that the calls of these took.
        call_s: the integral of its calls.
        is_warm: whether its instance had done work in an earlier slice.
    """

    began_s: float
    seen_s: float
    reading: ReplicaReading
    units: int
    took_s: float
    call_s: float = 0.0
    is_warm: bool = False


@dataclass(slots=True)
class LoadMeter:
    """The load of all replicas."""

    _slices: dict[str, _Slice] = field(default_factory=dict)
    _work: dict[Hashable, deque[tuple[float, int]]] = field(default_factory=dict)
    _began_s: dict[Hashable, float] = field(default_factory=dict)
    _steps: dict[tuple[Digest, str], StepTimes] = field(default_factory=dict)

    def observe(self, readings: Iterable[ReplicaReading], now_s: float) -> None:
        """Records the newest reports of all replicas that are ready."""
        found = {r.replica_id: r for r in readings}
        for replica_id in self._slices.keys() - found.keys():
            del self._slices[replica_id]
        components = {r.component for r in found.values()}
        for component in self._began_s.keys() - components:
            del self._began_s[component]
            self._work.pop(component, None)
        for component in components:
            self._began_s.setdefault(component, now_s)
        for replica_id, reading in found.items():
            self._observe(replica_id, reading, now_s)
        for work in self._work.values():
            while work and work[0][0] <= now_s - WINDOW_S:
                work.popleft()

    def units_per_s(self, component: Hashable, now_s: float) -> float | None:
        """Returns a component's work a second over the last minute; None before a first slice."""
        if component not in self._began_s:
            return None
        seconds = min(WINDOW_S, now_s - self._began_s[component])
        if seconds < SLICE_S:
            return None
        return sum(units for _, units in self._work.get(component, ())) / seconds

    def profile(self, signature: Digest, device_class: str, cap: int) -> BatchProfile | None:
        """Returns the step times of an engine on a class of device, as far as it was observed."""
        steps = self._steps.get((signature, device_class))
        return None if steps is None else steps.profile(cap)

    def calls_at_once(self, signature: Digest, device_class: str) -> float:
        """Returns the most calls at once, in the mean of a slice, of which it has observed steps.

        0 where it has observed none.
        """
        steps = self._steps.get((signature, device_class))
        return 0.0 if steps is None else steps.most_calls

    def _observe(self, replica_id: str, reading: ReplicaReading, now_s: float) -> None:
        known = self._slices.get(replica_id)
        if known is None or reading.units < known.reading.units:  # a new instance counts from 0
            self._slices[replica_id] = _Slice(now_s, now_s, reading, reading.units, reading.call_s)
            return
        done = reading.units - known.reading.units
        if done:
            self._work.setdefault(reading.component, deque()).append((now_s, done))
        known.call_s += min(known.reading.calls, reading.calls_max) * (now_s - known.seen_s)
        known.reading, known.seen_s = reading, now_s
        seconds = now_s - known.began_s
        if seconds < SLICE_S:
            return
        calls, units = known.call_s / seconds, reading.units - known.units
        if calls > _FEW_CALLS and units and known.is_warm:
            key = (reading.signature, reading.device_class)
            steps = self._steps.pop(key, StepTimes())  # the newest is the last to be forgotten
            took_s = reading.call_s - known.took_s or known.call_s
            self._steps[key] = steps.observed(calls, took_s / units)
            if len(self._steps) > ENGINES_MAX:
                del self._steps[next(iter(self._steps))]
        is_warm = known.is_warm or units > 0
        self._slices[replica_id] = _Slice(
            now_s, now_s, reading, reading.units, reading.call_s, is_warm=is_warm
        )
