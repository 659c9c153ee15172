"""The frozen signal: sizes of pools, and which engines their workers load ahead of work."""

from collections.abc import Mapping, Sequence
from math import ceil

from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest
from flowmesh_sim.policies.signals.frozen.backlog import FrozenBacklog, FrozenBacklogs
from flowmesh_sim.policies.signals.frozen.demand_forecast import Demand, DemandForecast
from flowmesh_sim.policies.signals.frozen.engine_relocation import FrozenEngineRelocation
from flowmesh_sim.policies.signals.signal import ScaledPool, SignalDecision, WantedSize


class FrozenSignal:
    """Decides as the shipped autoscaling did when it was frozen."""

    every_s = 5.0

    def __init__(self) -> None:
        self._forecast = DemandForecast()
        self._relocation = FrozenEngineRelocation()
        self._sizers: dict[str, FrozenPoolSizer] = {}

    def decide(self, state: State, pools: Sequence[ScaledPool], now_s: float) -> SignalDecision:
        """Returns the sizes of pools by their backlogs, and the engines in demand by worker."""
        seen, demand = snapshot(state, now_s), self._forecast.now(state, now_s)
        found = FrozenBacklogs(seen, state.model, pools, demand, self._relocation)
        sizes = {
            pool.name: self._sizers.setdefault(pool.name, FrozenPoolSizer()).sizes(
                pool, found.backlogs[pool.name], now_s
            )
            for pool in pools
            if pool.is_scaled
        }
        return SignalDecision(sizes, _prewarm_plan(seen, pools, demand, found.homes))


class FrozenPoolSizer:
    """Turns a pool's backlog into a number of workers that does not flap."""

    def __init__(self) -> None:
        self._recent: list[tuple[float, int]] = []
        self._vacated = False

    def sizes(self, pool: ScaledPool, backlog: FrozenBacklog, now_s: float) -> WantedSize:
        """Returns how many workers the pool should have, and how many it needs."""
        wanted = ceil(backlog.seconds / max(pool.target_s, pool.start_s))
        wanted = max(wanted, backlog.deadline_workers, 1 if backlog.actions else 0)
        wanted = max(pool.minimum, min(pool.maximum, wanted))
        if backlog.vacated and not self._vacated:
            self._recent.clear()
        self._vacated = backlog.vacated
        self._recent = [
            (t, n) for t, n in self._recent if now_s - t < pool.keep_alive_s and n > wanted
        ]
        self._recent.append((now_s, wanted))
        retained = min(pool.current, max(n for _, n in self._recent))
        needed = max(wanted, retained, min(pool.maximum, backlog.warm))
        return WantedSize(max(needed, min(pool.maximum, backlog.busy)), needed)


def _prewarm_plan(
    seen: Snapshot,
    pools: Sequence[ScaledPool],
    demand: Sequence[Demand],
    homes: Mapping[Digest, str],
) -> dict[str, tuple[Digest, ...]]:
    """Returns worker → signatures that it should load, the most frequent ones first."""
    prewarmed = {pool.name for pool in pools if pool.prewarms}
    workers = [w for w in seen.workers if w.shape.pool in prewarmed]
    found: dict[str, list[Digest]] = {w.name: [] for w in workers if not w.draining}
    free_mib = {w.name: w.shape.device_memory_mib * w.shape.devices for w in workers}
    for one in sorted(demand, key=lambda one: (one.gap_s, one.info.signature)):
        signature, mib = one.info.signature, one.info.requirement.memory_mib
        able = [
            (signature in w.instances, free_mib[w.name], w.name)
            for w in workers
            if w.name in found and w.shape.pool == homes.get(signature) and free_mib[w.name] >= mib
        ]
        if able:
            _, _, name = max(able)
            free_mib[name] -= mib
            found[name].append(signature)
    return {name: tuple(signatures) for name, signatures in found.items() if signatures}
