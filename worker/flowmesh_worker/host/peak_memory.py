"""The peak of this process's resident memory, read at most twenty times a second."""

import time
from pathlib import Path

_EVERY_S = 0.05


class PeakMemory:
    """``VmHWM`` of this process; ``ru_maxrss`` would include the parent's memory before exec."""

    def __init__(self) -> None:
        self._mib = 0
        self._read_s = float("-inf")

    def mib(self) -> int:
        """Returns the peak in MiB, at most a twentieth of a second old."""
        now = time.monotonic()
        if now - self._read_s >= _EVERY_S:
            self._read_s = now
            self._mib = _high_water_mib()
        return self._mib


def _high_water_mib() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return -(-int(line.split()[1]) // 1024)
    return 0
