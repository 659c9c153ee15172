"""How far observations exceed predictions, which gives the margin of the p95."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

WINDOW = 64
PRIOR_RATIO = 2.0
"""Ratio of the p95 to the prediction before anything was observed."""
PRIOR_WEIGHT = 6
RATIO_MAX = 20.0


class Residuals:
    """The last ratios of observed to predicted seconds, both by arrival and by size."""

    __slots__ = ("_p95", "ordered", "recent")

    def __init__(self, ratios: Iterable[float] = ()) -> None:
        """Starts with the given ratios, oldest first."""
        self.recent = deque(ratios, maxlen=WINDOW)
        self.ordered = sorted(self.recent)
        self._p95 = 0.0

    def add(self, ratio: float) -> None:
        """Adds a ratio, and drops the oldest one if there are more than ``WINDOW``."""
        ratio = min(ratio, RATIO_MAX)
        if len(self.recent) == WINDOW:
            del self.ordered[bisect_left(self.ordered, self.recent[0])]
        self.recent.append(ratio)
        insort(self.ordered, ratio)
        self._p95 = 0.0

    def p95_ratio(self) -> float:
        """Returns the ratios' 95th percentile, at least 1; with few ratios it is near the prior."""
        if self._p95 == 0.0:
            self._p95 = self._measure()
        return self._p95

    def _measure(self) -> float:
        n = len(self.ordered)
        if n == 0:
            return PRIOR_RATIO
        seen = self.ordered[min(n - 1, int(0.95 * n))]
        weight = max(0, PRIOR_WEIGHT - n // 4)
        return max(1.0, (n * seen + weight * PRIOR_RATIO) / (n + weight))
