"""The autoscaling signal as it is now: read by metrics and by whoever scales pools.

The fleet's owner declares its pools, so that one without any worker has a backlog too; where nobody
does (the laptop), the pools are those of the connected workers.
"""

import logging
import time
from collections.abc import Callable, Sequence

from flowmesh_control.loop.clock import Clock
from flowmesh_core.autoscaling.backlog import Backlog, signal_of
from flowmesh_core.autoscaling.pool_model import PoolView, pool_views
from flowmesh_core.autoscaling.prewarm_plan import openings_of
from flowmesh_core.autoscaling.right_sizing import RightSizing
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.machine.prewarm import in_demand
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest

log = logging.getLogger("flowmesh.control")

FRESH_S = 0.5
"""One answer serves everybody who asks within this time."""
TIMES = 20.0
"""A figure that took long to find is kept for so many times as long: dispatch comes first."""


class CapacitySignalSource:
    """Says what each pool has before it."""

    def __init__(self, state: State, clock: Clock) -> None:
        """Takes the machine's state."""
        self._state = state
        self._clock = clock
        self._pools: Callable[[], Sequence[PoolView]] | None = None
        self._rightsizing = RightSizing()
        self._found: dict[str, Backlog] = {}
        self._openings: dict[str, tuple[Digest, ...]] = {}
        self._found_s = float("-inf")
        self._fresh_s = FRESH_S

    def declare(self, pools: Callable[[], Sequence[PoolView]]) -> None:
        """Takes what says which pools there are, with or without workers."""
        self._pools = pools
        self._found_s = float("-inf")

    @property
    def declared(self) -> Sequence[PoolView]:
        """The pools that the fleet's owner has declared; empty where nobody did."""
        return self._pools() if self._pools is not None else ()

    def now(self) -> dict[str, Backlog]:
        """Every pool's backlog, at most ``FRESH_S`` old, or a little more where there is much."""
        self._refresh()
        return self._found

    def prewarm_plan(self) -> dict[str, tuple[Digest, ...]]:
        """Worker → signatures whose engines it should hold open; as old as :meth:`now`."""
        self._refresh()
        return self._openings

    def _refresh(self) -> None:
        now_s = self._clock()
        if not 0.0 <= now_s - self._found_s < self._fresh_s:
            began = time.perf_counter()
            seen = snapshot(self._state, now_s)
            pools = self._pools() if self._pools is not None else pool_views(seen.workers, {})
            warm = in_demand(self._state, now_s)
            sizing = self._rightsizing if self._pools is not None else RightSizing()
            moves = sizing.moves
            signal = signal_of(seen, self._state.model, pools, warm, sizing)
            if sizing.moves > moves:
                log.info("engines in demand move to pool %s", sizing.first)
            self._found = signal.backlogs
            self._openings = openings_of(seen.workers, warm, signal.homes)
            self._found_s = now_s
            self._fresh_s = max(FRESH_S, TIMES * (time.perf_counter() - began))
