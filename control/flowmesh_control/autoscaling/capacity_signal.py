"""The current capacity signal, by which pools scale; read by the metrics and the operator.

The operator declares its pools, so that a pool without workers has a backlog too. On a laptop the
pools are those of the connected workers.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from flowmesh_control.loop.clock import Clock
from flowmesh_core.autoscaling.backlog import Backlog, signal_of
from flowmesh_core.autoscaling.engine_relocation import EngineRelocation
from flowmesh_core.autoscaling.pool_model import PoolView, pool_views
from flowmesh_core.autoscaling.prewarm_plan import prewarm_plan
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.machine.prewarm import forecast_demand
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest

log = logging.getLogger("flowmesh.control")

FRESH_S = 0.5
"""The signal is computed at most once in this time."""
TIMES = 20.0
"""It is reused for at least this multiple of the time that computing it took.

So it never uses more than a twentieth of the event loop, which also dispatches."""


class CapacitySignalSource:
    """Computes the backlog of each pool and the engines that its workers should prewarm."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._pools: Callable[[], Sequence[PoolView]] | None = None
        self._floors: Callable[[], Mapping[str, int]] = dict
        self._relocation = EngineRelocation()
        self._backlogs: dict[str, Backlog] = {}
        self._prewarm_plan: dict[str, tuple[Digest, ...]] = {}
        self._computed_s = float("-inf")
        self._fresh_s = FRESH_S

    def declare(self, pools: Callable[[], Sequence[PoolView]]) -> None:
        """Sets the function that returns all pools, with and without workers."""
        self._pools = pools
        self._computed_s = float("-inf")

    def add_floors(self, floors: Callable[[], Mapping[str, int]]) -> None:
        """Sets the function that returns how many workers pools need for replicas of services."""
        self._floors = floors

    @property
    def declared(self) -> Sequence[PoolView]:
        """The declared pools; empty where none were declared."""
        return self._pools() if self._pools is not None else ()

    def declaration(self, pool: str) -> PoolDeclaration | None:
        """Returns what a declared pool's object says of its workers; None where there is none."""
        return next((p.declaration for p in self.declared if p.name == pool), None)

    def now(self) -> dict[str, Backlog]:
        """Returns each pool's backlog, at most ``FRESH_S`` old, or older where it is costly."""
        self._refresh()
        return self._backlogs

    def prewarm_plan(self) -> dict[str, tuple[Digest, ...]]:
        """Returns worker → signatures whose engines it should prewarm; as old as :meth:`now`."""
        self._refresh()
        return self._prewarm_plan

    def _refresh(self) -> None:
        now_s = self._clock()
        if not 0.0 <= now_s - self._computed_s < self._fresh_s:
            began = time.perf_counter()
            current = snapshot(self._state, now_s)
            pools = self._pools() if self._pools is not None else pool_views(current.workers, {})
            demand = forecast_demand(self._state, now_s)
            sizing = self._relocation if self._pools is not None else EngineRelocation()
            moves = sizing.moves
            signal = signal_of(current, self._state.model, pools, demand, sizing, self._floors())
            if sizing.moves > moves:
                log.info("engines in demand move to pool %s", sizing.first)
            self._backlogs = signal.backlogs
            self._prewarm_plan = prewarm_plan(
                current.workers, demand, signal.preferred, signal.overflow
            )
            self._computed_s = now_s
            self._fresh_s = max(FRESH_S, TIMES * (time.perf_counter() - began))
