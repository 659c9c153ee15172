"""The shipped autoscaling: the capacity signal, its hysteresis and the supply of machines."""

from collections.abc import Sequence

from flowmesh_core.autoscaling.backlog import signal_of
from flowmesh_core.autoscaling.engine_relocation import EngineRelocation
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_size import PoolSizer
from flowmesh_core.autoscaling.pool_supply import PoolSupply
from flowmesh_core.autoscaling.prewarm_plan import prewarm_plan
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.machine.prewarm import forecast_demand
from flowmesh_core.machine.state import State
from flowmesh_sim.policies.signals.signal import ScaledPool, SignalDecision, WantedSize


class ShippedSignal:
    """The live code of the control plane and the operator."""

    every_s = 5.0

    def __init__(self) -> None:
        self._relocation = EngineRelocation()
        self._supplies: dict[str, PoolSupply] = {}
        self._sizers: dict[str, PoolSizer] = {}

    def decide(self, state: State, pools: Sequence[ScaledPool], now_s: float) -> SignalDecision:
        """Decides as ``signal_of``, ``PoolSizer`` and ``prewarm_plan`` do."""
        views = [self._view(pool, now_s) for pool in pools]
        seen, demand = snapshot(state, now_s), forecast_demand(state, now_s)
        found = signal_of(seen, state.model, views, demand, self._relocation)
        sizes = {}
        for pool, view in zip(pools, views, strict=True):
            if pool.is_scaled:
                size = self._sizer(pool).sizes(view, found.backlogs[pool.name], pool.current, now_s)
                sizes[pool.name] = WantedSize(size.workers, size.needed)
        prewarmed = {pool.name for pool in pools if pool.prewarms}
        workers = [w for w in seen.workers if w.shape.pool in prewarmed]
        plan = prewarm_plan(workers, demand, found.preferred, found.overflow)
        return SignalDecision(sizes, plan)

    def _sizer(self, pool: ScaledPool) -> PoolSizer:
        new = PoolSizer(target_s=pool.target_s, stabilization_s=pool.keep_alive_s)
        return self._sizers.setdefault(pool.name, new)

    def _view(self, pool: ScaledPool, now_s: float) -> PoolView:
        supply = self._supplies.setdefault(pool.name, PoolSupply())
        requested = max(pool.current, pool.minimum)
        return PoolView(
            pool.name,
            pool.shape,
            pool.minimum,
            pool.maximum,
            pool.start_s,
            pool.target_s,
            pool.keep_alive_s,
            pool.local,
            supply.most(pool.living, requested, pool.start_s, now_s),
        )
