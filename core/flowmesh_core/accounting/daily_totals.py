"""Sums by namespace over the last day: the dollars paid, and the bytes uploaded.

The accounts store them, so that a restart does not begin a new day.
"""

from collections.abc import Mapping

HOUR_S = 3600
HOURS = 24
"""An amount counts until its hour is this many hours ago: for 24 to 25 hours."""

Hours = Mapping[int, int]
"""Hour since 1970 → what was added in it."""


class DailyTotals:
    """Amounts by namespace and hour."""

    def __init__(self, totals: Mapping[str, Hours] | None = None) -> None:
        """Starts with the totals of an earlier leader.

        Args:
            totals: as :meth:`current` returned it.
        """
        self._hours = {namespace: dict(hours) for namespace, hours in (totals or {}).items()}

    def add(self, namespace: str, amount: int, now_s: float) -> None:
        """Adds an amount at a time."""
        hour = int(now_s) // HOUR_S
        hours = self._hours.get(namespace)
        if hours is None:
            hours = self._hours[namespace] = {}
        if hour in hours:
            hours[hour] += amount
        elif amount:
            _drop_old(hours, hour)
            hours[hour] = amount

    def total(self, namespace: str, now_s: float) -> int:
        """Returns what was added in the last day."""
        oldest = int(now_s) // HOUR_S - HOURS
        hours = self._hours.get(namespace)
        return sum([n for h, n in hours.items() if h >= oldest]) if hours else 0

    def wait_s(self, namespace: str, most: int, now_s: float) -> float:
        """Returns in how many seconds the total is below ``most`` if nothing is added."""
        left, end_s = self.total(namespace, now_s), now_s
        for hour, amount in sorted(self._hours.get(namespace, {}).items()):
            leaves_s = (hour + HOURS + 1) * HOUR_S
            if left >= most and leaves_s > now_s:
                left, end_s = left - amount, leaves_s
        return end_s - now_s

    def all(self) -> dict[str, dict[int, int]]:
        """Returns every amount, also those that no longer count."""
        return {namespace: dict(hours) for namespace, hours in self._hours.items()}

    def current(self, now_s: float) -> dict[str, dict[int, int]]:
        """Returns what counts still, and forgets the rest."""
        hour = int(now_s) // HOUR_S
        for namespace, hours in list(self._hours.items()):
            _drop_old(hours, hour)
            if not hours:
                del self._hours[namespace]
        return self.all()


def _drop_old(hours: dict[int, int], hour: int) -> None:
    for old in [h for h in hours if h < hour - HOURS]:
        del hours[old]
