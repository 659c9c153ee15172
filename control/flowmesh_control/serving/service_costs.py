"""What services cost an hour, by what they have paid in the last minutes."""

from collections import deque
from collections.abc import Collection

WINDOW_S = 300.0
"""The time over which spending is measured."""
LEAST_S = 30.0
"""A shorter time says little: workers are paid for when they report."""
_EVERY_S = 5.0
_HOUR_S = 3600.0


class ServiceCosts:
    """The spending of all services, a sample every five seconds."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def keep(self, services: Collection[str]) -> None:
        """Forgets all services but these."""
        for gone in self._samples.keys() - services:
            del self._samples[gone]

    def observe(self, service: str, spent_nanousd: int, now_s: float) -> None:
        """Records what a service has cost so far."""
        samples = self._samples.setdefault(service, deque())
        if not samples or now_s >= samples[-1][0] + _EVERY_S:
            samples.append((now_s, spent_nanousd))
        while samples[0][0] < now_s - WINDOW_S:
            samples.popleft()

    def nanousd_per_hour(self, service: str) -> int:
        """Returns what a service costs an hour; 0 while that is not known."""
        samples = self._samples.get(service)
        if not samples:
            return 0
        (began_s, before), (ended_s, now) = samples[0], samples[-1]
        if ended_s - began_s < LEAST_S:
            return 0
        return max(0, round((now - before) / (ended_s - began_s) * _HOUR_S))
