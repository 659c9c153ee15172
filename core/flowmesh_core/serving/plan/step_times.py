"""How long a decoding step of an engine takes by its number of calls, learned from what it does.

A step makes one unit of work for each call that runs. Its time grows about linearly with their
number, so two different loads are enough to predict a load that was never seen; before that, calls
side by side are taken to cost nothing, which every busier minute corrects.
"""

import msgspec

from flowmesh_core.serving.profile import BatchProfile

DECAY = 0.98
"""How much an observation counts after the next one."""


class StepTimes(msgspec.Struct, frozen=True):
    """A weighted least-squares fit of seconds a step over calls, as its sums.

    Attributes:
        weight: of all observations; ``calls``, ``seconds`` are weighted sums, ``squares`` that of
            calls squared and ``products`` that of calls times seconds.
        most_calls: of one observation.
    """

    weight: float = 0.0
    calls: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    most_calls: float = 0.0

    def observed(self, calls: float, seconds: float) -> "StepTimes":
        """Returns the fit after some time with so much work done.

        The two are measured apart. The number of calls is sampled, so it has an error; seconds that
        were made of it would have the same error, and the line would take it for a slope.

        Args:
            calls: that ran at once, in the mean; above 0.
            seconds: that a call took for each unit of its work; above 0.
        """
        return StepTimes(
            DECAY * self.weight + 1,
            DECAY * self.calls + calls,
            DECAY * self.seconds + seconds,
            DECAY * self.squares + calls * calls,
            DECAY * self.products + calls * seconds,
            max(self.most_calls, calls),
        )

    def profile(self, cap: int) -> BatchProfile | None:
        """Returns the seconds of a step with 1 to ``cap`` calls; None before an observation."""
        if not self.weight:
            return None
        base, slope = self._line()
        sizes = {cap} | {2**n for n in range(cap.bit_length()) if 2**n <= cap}
        return BatchProfile.of({n: base + slope * n for n in sizes})

    def _line(self) -> tuple[float, float]:
        """Returns base and slope, neither below 0 and not both 0."""
        mean_calls, mean_s = self.calls / self.weight, self.seconds / self.weight
        spread = self.squares / self.weight - mean_calls**2
        if spread <= 1e-6 * mean_calls**2:  # one load only
            return mean_s, 0.0
        slope = (self.products / self.weight - mean_calls * mean_s) / spread
        slope = min(max(slope, 0.0), mean_s / mean_calls)
        return mean_s - slope * mean_calls, slope
