"""Ratios of paired measurements, with their intervals; used by the benchmarks of serving."""

import math
import random
import statistics
from collections.abc import Sequence

_RESAMPLES = 10_000


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Returns the ratio of medians with its 95% interval, by resampling of pairs.

    Args:
        ours: measurements, each taken beside the one of equal index in ``theirs``.
        theirs: as many.

    Returns:
        The lower limit, the ratio of the medians, the upper limit.
    """
    draw, count = random.Random(1), len(ours)
    ratios = sorted(
        _ratio(ours, theirs, draw.choices(range(count), k=count)) for _ in range(_RESAMPLES)
    )
    low, high = ratios[int(_RESAMPLES * 0.025)], ratios[int(_RESAMPLES * 0.975)]
    return low, _ratio(ours, theirs, range(count)), high


def median_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Returns the median of the differences of pairs with its 95% interval, by resampling."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    draw = random.Random(1)
    medians = sorted(
        statistics.median(draw.choices(differences, k=len(differences))) for _ in range(_RESAMPLES)
    )
    low, high = medians[int(_RESAMPLES * 0.025)], medians[int(_RESAMPLES * 0.975)]
    return low, statistics.median(differences), high


def interval(values: tuple[float, float, float], form: str = ".3f") -> str:
    """Formats a value with its interval."""
    low, middle, high = values
    return f"{middle:{form}} [{low:{form}}, {high:{form}}]"


def _ratio(ours: Sequence[float], theirs: Sequence[float], chosen: Sequence[int]) -> float:
    below = statistics.median(theirs[n] for n in chosen)
    return statistics.median(ours[n] for n in chosen) / below if below else math.inf
