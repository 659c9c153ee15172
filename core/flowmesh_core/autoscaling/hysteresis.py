"""From a pool's backlog to a number of workers, without flapping."""

from math import ceil
from typing import NamedTuple

from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView


class PoolSize(NamedTuple):
    """How large a pool should be.

    Attributes:
        workers: how many it should have, never fewer than are busy.
        needed: how many it could do with; of any more, some should take nothing new.
    """

    workers: int
    needed: int


class Hysteresis:
    """Turns a pool's backlog into a number of workers that does not flap.

    It grows at once and shrinks when fewer have been enough for ``calm_s``, or all that it held has
    been moved. State of one pool, held by who scales it and lost without harm.
    """

    def __init__(self, *, target_s: float = 60.0, calm_s: float = 120.0) -> None:
        """Takes the seconds of work that a worker may have before it, and the time to shrink.

        Raises:
            ValueError: ``target_s`` is not positive.
        """
        if target_s <= 0.0:
            raise ValueError(f"target_s is {target_s}; give the seconds of work a worker may have")
        self.target_s = target_s
        self.calm_s = calm_s
        self._asked: list[tuple[float, int]] = []
        self._left = False

    def remember(self, workers: int, now_s: float) -> None:
        """So many are taken as wanted now: who begins to look does not shrink at once."""
        self._asked.append((now_s, workers))

    def sizes(self, pool: PoolView, backlog: Backlog, current: int, now_s: float) -> PoolSize:
        """How many workers the pool should have, and how many it needs.

        Args:
            pool: its bounds.
            backlog: of this tick.
            current: workers that are connected or on their way.
            now_s: the time.

        Returns:
            Numbers between the pool's bounds; ``workers`` is never below the busy ones (unless
            those exceed the maximum, which then was lowered: they drain).
        """
        wanted = ceil(backlog.seconds / max(self.target_s, pool.start_s))
        wanted = max(wanted, backlog.pressed, 1 if backlog.actions else 0)
        wanted = max(wanted, current if backlog.awaited else 0)
        wanted = max(pool.minimum, min(pool.maximum, wanted))
        if backlog.left and not self._left:
            self._asked.clear()
        self._left = backlog.left
        self._asked = [(t, n) for t, n in self._asked if now_s - t < self.calm_s and n > wanted]
        self._asked.append((now_s, wanted))
        kept = min(current, max(n for _, n in self._asked))
        needed = max(wanted, kept, min(pool.maximum, backlog.warm))
        return PoolSize(max(needed, min(pool.maximum, backlog.busy)), needed)
