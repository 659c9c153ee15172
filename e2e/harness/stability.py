"""Statistics that show whether a sampled value stays stable."""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

Sample = tuple[float, float]
"""Seconds since the start, and the value."""


@contextmanager
def sampled(look: Callable[[], float], every_s: float) -> Iterator[list[Sample]]:
    """Samples a value during a block; failed samples are omitted."""
    seen: list[Sample] = []
    start, stop = time.monotonic(), threading.Event()

    def watch() -> None:
        while not stop.wait(every_s):
            with suppress(psutil.NoSuchProcess):
                seen.append((time.monotonic() - start, look()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def lows(samples: Sequence[Sample], window_s: float) -> list[Sample]:
    """Returns the minimum of each window, which excludes uncollected garbage."""
    by_window = itertools.groupby(samples, key=lambda sample: sample[0] // window_s)
    return [min(part, key=lambda sample: sample[1]) for _, part in by_window]


def slope_per_s(samples: Sequence[Sample]) -> float:
    """Returns the Theil-Sen slope: the median over all pairs, robust to steps and outliers."""
    pairs = itertools.combinations(samples, 2)
    return statistics.median((b - a) / (t - s) for (s, a), (t, b) in pairs)
