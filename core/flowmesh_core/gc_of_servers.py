"""Python's cyclic garbage collector in the processes that a request passes."""

import gc

YOUNG = 20_000
"""Net new objects before a collection of the youngest generation; Python's default is 700."""
MIDDLE, OLD = 20, 50
"""Collections of a generation before one of the next."""


def collect_rarely() -> None:
    """Excludes what is imported from collections, and makes them rare, for the whole process.

    A request makes some hundred objects, which end with it without a collection, and hardly a
    cycle. With the default thresholds every few requests begin one, which scans those in flight in
    vain: 3 to 8% of the processor time of router, hub and host at 8 concurrent requests. Only the
    entry points of processes call it: a test, or a program that imports their classes, keeps its
    own thresholds.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
