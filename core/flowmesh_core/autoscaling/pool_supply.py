"""Supply: whether a pool gets the workers that it asks for.

A cluster may have no node for a pod, a market no offer. What another pool could run does not wait
for that: a pool whose workers do not come counts as having no more than it has.
"""

from math import inf

from flowmesh_core.autoscaling.settings import (
    SUPPLY_PATIENCE_MIN_S,
    SUPPLY_PATIENCE_STARTS,
    SUPPLY_RETRY_S,
)


def longest_s(start_s: float) -> float:
    """How long a worker is waited for, by the seconds that one usually takes to connect."""
    return max(SUPPLY_PATIENCE_MIN_S, SUPPLY_PATIENCE_STARTS * start_s)


class PoolSupply:
    """Watches whether the workers come that one pool asks for. Lost without harm."""

    def __init__(self) -> None:
        """Nothing was asked for."""
        self._high = self._had = 0
        self._since_s, self._until_s = inf, -inf

    def most(self, living: int, asked: int, start_s: float, now_s: float) -> int | None:
        """The workers that the pool can have, as far as is known; None where no limit is known.

        Args:
            living: workers that are connected and stay.
            asked: those that there should be.
            start_s: predicted seconds from asking for a worker until it connects.
            now_s: the time.
        """
        more = living > self._high
        if more or asked <= living or self._since_s > now_s:
            self._since_s, self._high = now_s, living
        # Who only comes back, or comes and goes, is not one more.
        until_s = -inf if more else min(self._until_s, now_s + SUPPLY_RETRY_S)
        if now_s - self._since_s >= longest_s(start_s):
            until_s, self._had = now_s + SUPPLY_RETRY_S, living
        self._until_s = until_s
        return max(living, self._had) if now_s < until_s else None
