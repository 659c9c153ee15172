"""Supply: whether a pool gets the workers that it asks for.

A cluster may have no node for a pod, a market no offer. What another pool could run does not wait
for that: a pool whose workers do not come counts as having no more than it has.
"""

from math import inf

TIMES = 3.0
"""A worker that has not come in so many times its usual start is not expected any more..."""
LEAST_S = 180.0
"""...nor is it before."""
AGAIN_S = 1800.0
"""After so long a pool that asks no more may be asked again."""


class Supply:
    """Watches whether the workers come that one pool asks for. Lost without harm."""

    def __init__(self) -> None:
        """Nothing was asked for."""
        self._living = 0
        self._since_s, self._until_s = inf, -inf

    def most(self, living: int, asked: int, start_s: float, now_s: float) -> int | None:
        """The workers that the pool can have, as far as is known; None where no limit is known.

        Args:
            living: workers that are connected.
            asked: those that there should be.
            start_s: predicted seconds from asking for a worker until it connects.
            now_s: the time.
        """
        if living > self._living:
            self._until_s = -inf
        if asked <= living or living != self._living or self._since_s > now_s:
            self._since_s = now_s
        self._living = living
        if now_s - self._since_s >= max(LEAST_S, TIMES * start_s):
            self._until_s = now_s + AGAIN_S
        return living if now_s < self._until_s else None
