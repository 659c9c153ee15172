"""The measured time of a component's batches, by batch size."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import msgspec

NEAR_PEAK = 0.95
"""The knee is the smallest batch that reaches this share of the best throughput."""


class BatchProfile(msgspec.Struct, frozen=True):
    """Seconds of one batch by its size, on one class of device.

    Attributes:
        sizes: the batch sizes that were measured, ascending, the first is 1.
        seconds: for each of them, from gathering the inputs to handing on the outputs; above 0.
            Need not ascend: a larger batch may hit a faster kernel.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """Checks the table.

        Raises:
            ValueError: the sizes do not ascend from 1, or a time is missing or not above 0.
        """
        if self.sizes[:1] != (1,) or list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"the sizes of a profile ascend from 1, not {self.sizes}")
        if len(self.seconds) != len(self.sizes) or min(self.seconds) <= 0:
            raise ValueError("a profile has a time above 0 for each size")

    @classmethod
    def of(cls, seconds: Mapping[int, float]) -> "BatchProfile":
        """Returns the profile with these seconds by batch size."""
        sizes = tuple(sorted(seconds))
        return cls(sizes, tuple(seconds[b] for b in sizes))

    @classmethod
    def mean(cls, profiles: "Sequence[BatchProfile]") -> "BatchProfile":
        """Returns the mean of at least one profile, at all sizes that any of them has."""
        sizes = sorted({size for profile in profiles for size in profile.sizes})
        return cls.of({b: sum(p.at(b) for p in profiles) / len(profiles) for b in sizes})

    @property
    def largest(self) -> int:
        """The largest batch that was measured."""
        return self.sizes[-1]

    def at(self, batch: int) -> float:
        """Returns the seconds of a batch of this size.

        Between two measured sizes the time is interpolated; above the largest it grows in
        proportion, so that no batch looks better than what was measured.
        """
        after = bisect_left(self.sizes, batch)
        if after == len(self.sizes):
            return self.seconds[-1] * batch / self.sizes[-1]
        if self.sizes[after] == batch:
            return self.seconds[after]
        low, high = self.sizes[after - 1], self.sizes[after]
        share = (batch - low) / (high - low)
        return self.seconds[after - 1] * (1 - share) + self.seconds[after] * share

    def largest_within(self, seconds: float, cap: int) -> int:
        """Returns the largest batch up to ``cap`` that takes at most so long; 1 where none does.

        All sizes are looked at: a larger batch may be faster than a smaller one.
        """
        top = cap
        for low, low_s in zip(reversed(self.sizes), reversed(self.seconds), strict=True):
            if low > top:
                continue
            if self.at(top) <= seconds:
                return top
            if low_s <= seconds:  # from there to the top the time only rises
                return low + bisect_right(range(low, top + 1), seconds, key=self.at) - 1
            top = low
        return 1

    def best_rate(self, cap: int) -> float:
        """Returns the most requests per second that batches up to ``cap`` reach."""
        return max(b / self.at(b) for b in self._up_to(cap))

    def knee(self) -> int:
        """Returns the smallest measured batch near the best throughput; see ``NEAR_PEAK``."""
        rates = [b / s for b, s in zip(self.sizes, self.seconds, strict=True)]
        enough = NEAR_PEAK * max(rates)
        return next(b for b, rate in zip(self.sizes, rates, strict=True) if rate >= enough)

    def at_halves(self) -> "BatchProfile":
        """Returns the profile at its largest size, half of it, and so on.

        Of sizes that were measured one by one each is near the throughput of the next, so the knee
        of all of them would be found long before batches stop getting faster.
        """
        size, sizes = self.largest, {1}
        while size > 1:
            sizes.add(size)
            size //= 2
        return BatchProfile.of({b: self.at(b) for b in sizes})

    def updated(self, batch: int, seconds: float, weight: float) -> "BatchProfile":
        """Returns the profile after a measurement, as a moving average with this weight.

        Args:
            batch: the size of the measured batch.
            seconds: how long it took.
            weight: of the measurement, above 0 and at most 1.
        """
        known_s = self.at(batch)
        at = bisect_left(self.sizes, batch)
        after = at + (self.sizes[at : at + 1] == (batch,))
        return BatchProfile(
            (*self.sizes[:at], batch, *self.sizes[after:]),
            (*self.seconds[:at], (1 - weight) * known_s + weight * seconds, *self.seconds[after:]),
        )

    def _up_to(self, cap: int) -> list[int]:
        return [b for b in self.sizes if b < cap] + [cap]
