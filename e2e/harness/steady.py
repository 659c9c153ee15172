"""Whether something that is looked at again and again stays where it is."""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

Sample = tuple[float, float]
"""Seconds since the start, and what was seen then."""


@contextmanager
def sampled(look: Callable[[], float], every_s: float) -> Iterator[list[Sample]]:
    """Looks all through a block; the list grows meanwhile. What is gone is not seen."""
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
    """The least of each window: what waits for the garbage collector comes and goes above it."""
    by_window = itertools.groupby(samples, key=lambda sample: sample[0] // window_s)
    return [min(part, key=lambda sample: sample[1]) for _, part in by_window]


def slope_per_s(samples: Sequence[Sample]) -> float:
    """Theil and Sen's: the median over all pairs, which a step or an outlier moves little."""
    pairs = itertools.combinations(samples, 2)
    return statistics.median((b - a) / (t - s) for (s, a), (t, b) in pairs)
