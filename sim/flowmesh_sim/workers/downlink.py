"""The downloads of a simulated worker, which divide the rate of its network."""

from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_sim.kernel.environment import Environment, Timer, cancel
from flowmesh_sim.models.download_rates import DownloadRates

ENDED_S = 1e-6
"""A download with less left than this has ended: times are rounded."""


@dataclass(slots=True, eq=False)
class _Download:
    """A download.

    Attributes:
        left_s: seconds that the rest takes alone.
        share: part of the worker's rate that it takes alone.
        bytes_per_s: its rate alone.
    """

    left_s: float
    share: float
    bytes_per_s: float
    done: Callable[[], None]

    def speed(self, count: int) -> float:
        """Returns its rate, as one of ``count`` downloads, over its rate alone."""
        return min(1.0, 1.0 / (count * self.share))


class Downlink:
    """The downloads in progress.

    Each has an equal part of what the worker's connections reach together, as the pieces of all
    downloads take turns; one that cannot use its part leaves the rest unused.
    """

    def __init__(self, engine: Environment, rates: DownloadRates) -> None:
        """Starts without downloads."""
        self._engine = engine
        self._rates = rates
        self._running: list[_Download] = []
        self._since_s = 0.0
        self._received_bytes = 0.0
        self._timer: Timer | None = None

    def start(self, size_bytes: int, done: Callable[[], None]) -> None:
        """Downloads this many bytes and calls ``done``."""
        self._advance()
        seconds, share = self._rates.seconds(size_bytes), self._rates.share(size_bytes)
        bytes_per_s = size_bytes / seconds if seconds else 0.0
        self._running.append(_Download(seconds, share, bytes_per_s, done))
        self._plan()

    def received_bytes(self) -> float:
        """Returns what has come until now, with the parts of downloads in progress."""
        passed_s, count = self._engine.now_s - self._since_s, len(self._running)
        return self._received_bytes + sum(
            min(passed_s * d.speed(count), d.left_s) * d.bytes_per_s for d in self._running
        )

    def _advance(self) -> None:
        """Subtracts what was downloaded since the last change."""
        self._received_bytes = self.received_bytes()
        now_s, count = self._engine.now_s, len(self._running)
        for download in self._running:
            download.left_s -= (now_s - self._since_s) * download.speed(count)
        self._since_s = now_s

    def _plan(self) -> None:
        """Sets the timer to the next end."""
        cancel(self._timer)
        count = len(self._running)
        left_s = [max(0.0, d.left_s) / d.speed(count) for d in self._running]
        self._timer = self._engine.after(min(left_s), self._end) if left_s else None

    def _end(self) -> None:
        self._advance()
        ended = [d for d in self._running if d.left_s <= ENDED_S]
        self._received_bytes += sum(max(0.0, d.left_s) * d.bytes_per_s for d in ended)
        self._running = [d for d in self._running if d.left_s > ENDED_S]
        self._plan()
        for download in ended:
            download.done()
