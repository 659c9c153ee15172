"""Counts of values by size, cheap enough for the path of dispatch."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """How many values were at most each bound.

    Attributes:
        bounds: upper bounds, rising; values above the last are in a bucket of their own.
        counts: by bucket, not cumulative; one more than there are bounds.
        total: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns each bound, as text, with the number of values up to it; the last is ``+Inf``."""
        found: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found
