"""Supply: whether a pool gets the workers that it requests.

A cluster may have no node for a pod, and a market may have no offer. Work that another pool could
run does not wait for them: if a pool's workers do not arrive, the pool counts as limited to the
workers that it has (ADR 87).
"""

from math import inf

from flowmesh_core.autoscaling.settings import (
    SUPPLY_PATIENCE_MIN_S,
    SUPPLY_PATIENCE_STARTS,
    SUPPLY_RETRY_S,
)


def longest_s(start_s: float) -> float:
    """Returns how long to wait for a worker that usually takes ``start_s`` to connect."""
    return max(SUPPLY_PATIENCE_MIN_S, SUPPLY_PATIENCE_STARTS * start_s)


class PoolSupply:
    """Watches whether one pool's requested workers arrive. Its state may be lost without harm."""

    def __init__(self) -> None:
        self._most_seen = self._limit = 0
        self._since_s, self._until_s = inf, -inf

    def most(self, living: int, asked: int, start_s: float, now_s: float) -> int | None:
        """Returns how many workers the pool can get; None if no limit is known.

        Args:
            living: workers that are connected and will stay.
            asked: workers that the pool should have.
            start_s: predicted seconds from requesting a worker until it connects.
            now_s: the time.
        """
        more = living > self._most_seen
        if more or asked <= living or self._since_s > now_s:
            self._since_s, self._most_seen = now_s, living
        # Only a new maximum lifts the limit: a worker that reconnects is not an additional one.
        until_s = -inf if more else min(self._until_s, now_s + SUPPLY_RETRY_S)
        if now_s - self._since_s >= longest_s(start_s):
            until_s, self._limit = now_s + SUPPLY_RETRY_S, living
        self._until_s = until_s
        return max(living, self._limit) if now_s < until_s else None
