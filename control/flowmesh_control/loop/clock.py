"""The control plane's clock: one function that is passed on, so that tests can replace it."""

import time
from collections.abc import Callable
from functools import partial

Clock = Callable[[], float]
"""Seconds since the Unix epoch (UTC)."""


_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_since_boot = partial(time.clock_gettime, _SINCE_BOOT)
"""Seconds on a clock that counts while the machine sleeps and that cannot be set."""


def steady(
    wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = _since_boot
) -> Clock:
    """Returns a clock that reads the wall clock once and never jumps afterwards.

    Bills, deadlines and backoffs are differences of its times. If the machine's clock is set while
    a control plane runs, its times keep the former offset until a restart.

    Args:
        wall: Unix time in seconds.
        elapsed: seconds since any moment, without jumps.
    """
    began_s = wall() - elapsed()
    return lambda: began_s + elapsed()


system_clock: Clock = steady()
