"""Turns a pool's backlog into a number of workers, without flapping."""

from math import ceil
from typing import NamedTuple

from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView


class PoolSize(NamedTuple):
    """How large a pool should be.

    Attributes:
        workers: how many it should have. Busy workers are kept, up to the pool's maximum.
        needed: how many would be enough; workers beyond that should get no new work.
    """

    workers: int
    needed: int


class PoolSizer:
    """Turns a pool's backlog into a number of workers that does not flap.

    The pool grows at once. It shrinks when fewer workers have been enough for ``stabilization_s``,
    or for as long as a worker takes to start if that is longer. Each pool has its own sizer, whose
    state may be lost without harm.
    """

    def __init__(self, *, target_s: float = 60.0, stabilization_s: float = 30.0) -> None:
        """Starts without recent sizes.

        Args:
            target_s: seconds of work that a worker may have queued.
            stabilization_s: seconds for which fewer workers must be enough before the pool shrinks.

        Raises:
            ValueError: ``target_s`` is not positive.
        """
        if target_s <= 0.0:
            raise ValueError(f"target_s is {target_s}: expected a positive number of seconds")
        self.target_s = target_s
        self.stabilization_s = stabilization_s
        self._recent: list[tuple[float, int]] = []

    def remember(self, workers: int, now_s: float) -> None:
        """Counts ``workers`` as wanted now, so a new sizer does not shrink the pool at once."""
        self._recent.append((now_s, workers))

    def sizes(self, pool: PoolView, backlog: Backlog, current: int, now_s: float) -> PoolSize:
        """Returns how many workers the pool should have, and how many it needs.

        Args:
            pool: the pool, with its minimum and maximum.
            backlog: the pool's present backlog.
            current: workers that are connected or starting.
            now_s: the time.

        Returns:
            Numbers within the pool's minimum and maximum. ``workers`` is at least the busy ones,
            unless they exceed a maximum that was lowered: then they drain.
        """
        wanted = max(self._wanted(pool, backlog), backlog.steady)
        if backlog.unbounded is not None:
            others = max(self._wanted(pool, backlog.unbounded), backlog.busy)
            wanted = min(wanted, others + sum(backlog.bounded.values()))
        if backlog.overflow:
            wanted = max(wanted, backlog.steady + backlog.overflow)
        wanted += backlog.occupied
        wanted = max(wanted, current if backlog.substitutable else 0)
        wanted = max(pool.minimum, min(pool.maximum, wanted))
        window_s = max(self.stabilization_s, pool.start_s)
        self._recent = [(t, n) for t, n in self._recent if now_s - t < window_s and n > wanted]
        self._recent.append((now_s, wanted))
        retained = min(current, pool.maximum, max(n for _, n in self._recent))
        floor = max(backlog.for_open_steps, backlog.serving, min(current, backlog.warm))
        needed = max(wanted, retained, min(pool.maximum, floor))
        return PoolSize(max(needed, min(pool.maximum, backlog.busy)), needed)

    def _wanted(self, pool: PoolView, backlog: Backlog) -> int:
        """Returns how many workers a backlog is worth."""
        wanted = ceil(backlog.seconds / max(self.target_s, pool.start_s))
        wanted = max(wanted, backlog.workers_that_pay(pool, pool.most))
        wanted = min(wanted, backlog.usable)
        return max(wanted, backlog.deadline_workers, 1 if backlog.actions else 0)
