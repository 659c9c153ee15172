"""Sums of times that one thread counts, for a collector to read.

Each counter of ``prometheus_client`` takes a lock; these do not.
"""

import itertools
from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.utils import floatToGoString


class SecondsSum:
    """Times, by their number and sum.

    Attributes:
        count: how many.
        sum_s: of all.
    """

    __slots__ = ("count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts a time."""
        self.count += 1
        self.sum_s += seconds


class SecondsHistogram:
    """Times by bucket.

    Attributes:
        sum_s: of all times.
    """

    __slots__ = ("_bounds", "_counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Has no times.

        Args:
            bounds: of the buckets, ascending, in seconds; the last one is endless.
        """
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Counts a time."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Returns how many times were at most each bound, as Prometheus has them."""
        names = (*map(floatToGoString, self._bounds), "+Inf")
        return list(zip(names, itertools.accumulate(self._counts), strict=True))
