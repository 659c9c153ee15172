"""Attributes energy to attempts: metered joules, or stated power, shared by those that run.

Whenever an attempt starts or ends, the energy since the previous such moment is divided equally
among the attempts that ran. An attempt's joules are the sum of its parts, so the attempts' joules
add up to the total.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

RAPL = Path("/sys/class/powercap")
_READ_EVERY_S = 0.05
_MICRO = 1e-6
_MILLI = 1e-3
_log = logging.getLogger(__name__)


class EnergyMeter(Protocol):
    """A counter of joules that never decreases."""

    def joules(self) -> float:
        """Joules since an arbitrary moment in the past."""
        ...


class RaplMeter:
    """The RAPL package counters of Intel and AMD; each wraps around at its own maximum."""

    def __init__(self, root: Path = RAPL) -> None:
        """Finds the packages that this process may read."""
        self._packages: list[tuple[Path, int]] = []
        for package in sorted(root.glob("intel-rapl:[0-9]*")):
            if package.name.count(":") > 1:
                continue
            try:
                limit = int((package / "max_energy_range_uj").read_text())
                int((package / "energy_uj").read_text())
            except (OSError, ValueError):
                continue
            self._packages.append((package / "energy_uj", limit))
        self._last = [self._read(p) for p, _ in self._packages]
        self._sum_uj = 0

    @property
    def available(self) -> bool:
        """Whether this process can read at least one counter."""
        return bool(self._packages)

    def joules(self) -> float:
        """As :meth:`EnergyMeter.joules`."""
        for index, (file, limit) in enumerate(self._packages):
            now = self._read(file)
            self._sum_uj += (now - self._last[index]) % (limit + 1)
            self._last[index] = now
        return self._sum_uj * _MICRO

    @staticmethod
    def _read(file: Path) -> int:
        return int(file.read_text())


class NvmlMeter:
    """The sum of the energy counters of all NVIDIA devices."""

    def __init__(self, library: object) -> None:
        """Opens a handle of every device.

        Args:
            library: ``pynvml``, initialized.
        """
        self._library = library
        count = library.nvmlDeviceGetCount()  # type: ignore[attr-defined]
        get = library.nvmlDeviceGetHandleByIndex  # type: ignore[attr-defined]
        self._handles = [get(i) for i in range(count)]

    def joules(self) -> float:
        """As :meth:`EnergyMeter.joules`."""
        read = self._library.nvmlDeviceGetTotalEnergyConsumption  # type: ignore[attr-defined]
        return float(sum(read(h) for h in self._handles) * _MILLI)


class EnergyShares:
    """Divides energy among the attempts that run."""

    def __init__(
        self,
        meter: EnergyMeter | None,
        power_w: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with no attempt.

        Args:
            meter: None to assume ``power_w`` while any attempt runs.
            power_w: stated power of the worker under load.
            clock: monotonic seconds.
        """
        self._meter = meter
        self._power_w = power_w
        self._clock = clock
        self._failed = False
        self._share = 0.0
        self._began: dict[str, float] = {}
        self._read_s = clock()
        self._read_j = self._reading()

    def begin(self, attempt_id: str) -> None:
        """Records that an attempt runs; a second call does nothing."""
        if attempt_id not in self._began:
            self._advance()
            self._began[attempt_id] = self._share

    def end(self, attempt_id: str) -> tuple[float, bool]:
        """Stops counting.

        Returns:
            Its joules, 0 where it never ran, and whether no meter was read.
        """
        estimated = self._meter is None
        if attempt_id not in self._began:
            return 0.0, estimated
        self._advance()
        return self._share - self._began.pop(attempt_id), estimated

    def _advance(self) -> None:
        now = self._clock()
        elapsed = now - self._read_s
        # Reading a counter is slow: within the interval the last measured power is assumed, as it
        # is where the counter cannot be read or is read for the first time.
        spent = self._power_w * elapsed
        is_due = elapsed >= _READ_EVERY_S or self._power_w <= 0
        joules = self._reading() if is_due else None
        if joules is not None and self._read_j is not None:
            spent = max(0.0, joules - self._read_j)
            if elapsed > 0:
                self._power_w = spent / elapsed
        if joules is not None:
            self._read_j = joules
        elif self._read_j is not None:
            self._read_j += spent
        self._add(spent)
        self._read_s = now

    def _reading(self) -> float | None:
        """What the meter shows; None without one, or where it cannot be read: devices get lost."""
        if self._meter is None:
            return None
        try:
            joules = self._meter.joules()
        except Exception as error:
            if not self._failed:
                _log.warning("the energy meter cannot be read, the last power counts: %r", error)
            self._failed = True
            return None
        self._failed = False
        return joules

    def _add(self, joules: float) -> None:
        if self._began:
            self._share += joules / len(self._began)
