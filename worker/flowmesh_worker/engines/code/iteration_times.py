"""What was measured of a component that iterates, and what that says of a whole call.

A component host measures steps: a call takes as many as its component wants. Queues predict a call
by the steps that it has left; the control plane plans with whole calls.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.stages.stage_timing import StageTiming

_LEAST_WEIGHT = 0.05
_STEPS_MAX = 1_000_000
"""More are not believed: code says how many are left, and it may be wrong."""
_LEAST_S = 1e-6
_RECENT, _LENGTHS, _LEAST_LENGTH = 256, 16, 1e-3
_SIZES_MAX = 64
"""Of a profile that the control plane takes."""


@dataclass(slots=True)
class IterationTimes:
    """The parts of a call of one component.

    Attributes:
        start_s: of one call, in a moving average; ``finish_s`` too.
        begun: calls that were measured as they began; ``ended`` as they were finished.
        recent: the steps of the last calls.
    """

    start_s: float = 0.0
    finish_s: float = 0.0
    begun: int = 0
    ended: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def steps(self) -> float:
        """The steps of a call, in the mean."""
        return sum(self.recent) / len(self.recent) if self.recent else 1.0

    def record_starts(self, calls: int, seconds: float) -> None:
        """Records that calls were begun, one after the other."""
        if calls:
            self.begun += calls
            self.start_s += _weight(self.begun) * (seconds / calls - self.start_s)

    def record_ends(self, steps: list[int], seconds: float) -> None:
        """Records calls that were finished, by the steps of each."""
        for taken in steps:
            self.ended += 1
            self.recent.append(taken)
            self.finish_s += _weight(self.ended) * (seconds / len(steps) - self.finish_s)

    def steps_left(self, remaining: int, timing: StageTiming) -> int:
        """Returns the steps that a call needs here until its reply, at least 1.

        Args:
            remaining: of the call, as its component says; 0 where it does not.
            timing: says how often the request calls the component again.
        """
        again = round((timing.visits - 1) * self.steps) if timing.visits > 1 else 0
        return min(_STEPS_MAX, max(1, remaining) + again)

    def rest_s(self, timing: StageTiming) -> float:
        """Returns the least time that a request needs beside its steps here, until its reply."""
        return timing.rest_s + self.finish_s + (timing.visits - 1) * (self.start_s + self.finish_s)

    def step_target_s(self, target_s: float) -> float:
        """Returns the part of a call's target that one step has; 0 without a target."""
        if not target_s:
            return 0.0
        return max(_LEAST_S, (target_s - self.start_s - self.finish_s) / self.steps)

    def predicted_s(self, step_s: float, begins: int, size: int) -> float:
        """Returns the most that a step takes, if all its calls end with it; infinite if unknown."""
        if not self.ended:
            return math.inf
        return step_s + begins * self.start_s + size * self.finish_s

    @property
    def call_lengths(self) -> tuple[float, ...]:
        """The steps of calls beside their mean, ascending; see ``ReplicaLoad``."""
        found, mean = sorted(self.recent), self.steps
        middles = ((2 * n + 1) / (2 * _LENGTHS) for n in range(_LENGTHS if found else 0))
        lengths = (found[int(middle * len(found))] / mean for middle in middles)
        return tuple(max(_LEAST_LENGTH, round(length, 3)) for length in lengths)

    def of_calls(self, steps: BatchProfile) -> BatchProfile | None:
        """Returns the seconds of a whole call, by the number that run; None before one has ended.

        While as many run, each of them is begun and finished once in the steps of one.
        """
        if not self.ended:
            return None
        mean, once_s = self.steps, self.start_s + self.finish_s
        sizes = steps.sizes[:: -(-len(steps.sizes) // _SIZES_MAX)]
        return BatchProfile.of({b: mean * steps.at(b) + b * once_s for b in sizes})


def _weight(count: int) -> float:
    return max(1 / count, _LEAST_WEIGHT)
