"""Supply: whether a pool gets the workers that it requests.

A cluster may have no node for a pod, a market no offer. Work that another pool could run does not
wait for that: a pool whose workers do not come counts as limited to those that it has (ADR 87).
"""

from math import inf

from flowmesh_core.autoscaling.settings import (
    SUPPLY_PATIENCE_MIN_S,
    SUPPLY_PATIENCE_STARTS,
    SUPPLY_RETRY_S,
)


def longest_s(start_s: float) -> float:
    """Returns how long to wait for a worker, by the seconds that one usually takes to connect."""
    return max(SUPPLY_PATIENCE_MIN_S, SUPPLY_PATIENCE_STARTS * start_s)


class PoolSupply:
    """Watches whether the workers come that one pool requests. It may be lost without harm."""

    def __init__(self) -> None:
        self._most_seen = self._limit = 0
        self._since_s, self._until_s = inf, -inf

    def most(self, living: int, asked: int, start_s: float, now_s: float) -> int | None:
        """Returns the workers that the pool can have, as far as is known; None without a limit.

        Args:
            living: workers that are connected and stay.
            asked: those that there should be.
            start_s: predicted seconds from requesting a worker until it connects.
            now_s: the time.
        """
        more = living > self._most_seen
        if more or asked <= living or self._since_s > now_s:
            self._since_s, self._most_seen = now_s, living
        # Only a new maximum lifts the limit: a worker that reconnects is not one more.
        until_s = -inf if more else min(self._until_s, now_s + SUPPLY_RETRY_S)
        if now_s - self._since_s >= longest_s(start_s):
            until_s, self._limit = now_s + SUPPLY_RETRY_S, living
        self._until_s = until_s
        return max(living, self._limit) if now_s < until_s else None
