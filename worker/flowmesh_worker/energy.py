"""Joules: what a meter says, or the stated power, shared out among the attempts that run at once.

At every start and end of an attempt the energy since the last such moment is divided equally among
those that ran; an attempt's joules are the sum of its parts, so the parts add up to the whole.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

RAPL = Path("/sys/class/powercap")
_READ_EVERY_S = 0.05
_MICRO = 1e-6
_MILLI = 1e-3


class EnergyMeter(Protocol):
    """A counter of joules that only rises."""

    def joules(self) -> float:
        """Joules since some moment in the past."""
        ...


class RaplMeter:
    """Intel's and AMD's package counters; each wraps around at its own maximum."""

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
        """Whether there is anything to read."""
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
    """The energy counters of all NVIDIA devices."""

    def __init__(self, library: object) -> None:
        """Takes the opened library (``pynvml``)."""
        self._library = library
        count = library.nvmlDeviceGetCount()  # type: ignore[attr-defined]
        get = library.nvmlDeviceGetHandleByIndex  # type: ignore[attr-defined]
        self._handles = [get(i) for i in range(count)]

    def joules(self) -> float:
        """As :meth:`EnergyMeter.joules`."""
        read = self._library.nvmlDeviceGetTotalEnergyConsumption  # type: ignore[attr-defined]
        return float(sum(read(h) for h in self._handles) * _MILLI)


class EnergyShares:
    """Shares energy out among the attempts that run."""

    def __init__(
        self,
        meter: EnergyMeter | None,
        power_w: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the meter; without one the stated power counts while anything runs."""
        self._meter = meter
        self._power_w = power_w
        self._clock = clock
        self._share = 0.0
        self._began: dict[str, float] = {}
        self._read_s = clock()
        self._read_j = meter.joules() if meter is not None else 0.0

    def begin(self, attempt_id: str) -> None:
        """An attempt starts to run; saying so again is harmless."""
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
        if self._meter is not None and elapsed < _READ_EVERY_S and self._power_w > 0:
            # Between two readings the power of the last span is taken to hold.
            self._add(self._power_w * elapsed)
            self._read_j += self._power_w * elapsed
        elif self._meter is not None:
            joules = self._meter.joules()
            spent = max(0.0, joules - self._read_j)
            self._read_j = joules
            if elapsed > 0:
                self._power_w = spent / elapsed
            self._add(spent)
        else:
            self._add(self._power_w * elapsed)
        self._read_s = now

    def _add(self, joules: float) -> None:
        if self._began:
            self._share += joules / len(self._began)
