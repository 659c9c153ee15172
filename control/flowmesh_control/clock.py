"""Where the control plane's times come from: one function, so that tests hold it in their hand."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the Unix epoch (UTC)."""

system_clock: Clock = time.time
