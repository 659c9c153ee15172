"""Where the control plane's times come from: one function, so that tests hold it in their hand."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the Unix epoch (UTC)."""


def _since_boot() -> float:
    """Seconds on a clock that goes on while the machine sleeps, and that nobody sets."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def steady(
    wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _since_boot
) -> Clock:
    """A clock that reads the wall once and never steps afterwards.

    Bills, deadlines and backoffs are differences of its times. When the machine's clock is set
    while a control plane runs, its times stay as far off as the clock was; a restart mends that.

    Args:
        wall: seconds since the epoch.
        elapsed: seconds since whenever, never stepping.
    """
    began_s = wall() - elapsed()
    return lambda: began_s + elapsed()


system_clock: Clock = steady()
