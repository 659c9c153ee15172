"""Frozen copy of engine relocation: which pool comes first for the engines in demand (ADR 22)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest
from flowmesh_sim.policies.signals.frozen.demand_forecast import Demand
from flowmesh_sim.policies.signals.frozen.template_worker import (
    FrozenMemoryPacking,
    FrozenTemplateWorker,
)
from flowmesh_sim.policies.signals.signal import ScaledPool

QUIET_SHARE = 0.33
BUSY_SHARE = 0.5
SETTLED_SHARE = 0.5
CHEAPER_COST_SHARE = 0.8
VACATED_NOTICE_S = 60.0
STEADY_S = 3600.0
MOVE_PATIENCE_IDLE_TIMES = 32


@dataclass(frozen=True, slots=True)
class FrozenPoolRequirement:
    """The workers that a pool would need to have all engines in demand open.

    Attributes:
        pool: the pool.
        nanousd_per_hour: what they add to the bill, so without those that the pool has in any case;
            infinity where not all engines fit.
        use: share of their capacity that the demand takes.
    """

    pool: ScaledPool
    nanousd_per_hour: float
    use: float


def fleet_of(
    pool: ScaledPool,
    warm: Sequence[Demand],
    places: Mapping[Digest, Mapping[str, FrozenTemplateWorker]],
) -> FrozenPoolRequirement:
    """Returns what a pool would need for the engines in demand.

    Args:
        pool: the pool.
        warm: signatures in demand, the largest first.
        places: signature → pool → an idle worker of it.
    """
    packing, used, able = FrozenMemoryPacking(pool), 0.0, bool(warm)
    for one in warm:
        empty = places[one.info.signature].get(pool.name)
        mib = one.info.requirement.memory_mib
        if empty is None or not packing.fits(mib):
            able = False
        else:
            packing.take(mib)
            used += empty.share_s(one.work) * one.per_s
    added = max(0, packing.workers - pool.minimum) * pool.shape.price_nanousd_per_hour
    return FrozenPoolRequirement(pool, added if able else inf, used / max(1, packing.workers))


@dataclass(frozen=True, slots=True)
class FrozenEngineReadiness:
    """What a pool has open of the engines in demand.

    Attributes:
        any: share that is open or loading; ``ready`` the share that takes work.
    """

    any: float = 0.0
    ready: float = 0.0


NOTHING = FrozenEngineReadiness()


class FrozenEngineRelocation:
    """Remembers which pool comes first, and since when another should.

    Attributes:
        first: that pool; None while no pool has the engines in demand open.
        leaving: pools that they are moving from, which stay until the first has the engines open.
    """

    def __init__(self) -> None:
        self.first: str | None = None
        self.leaving: set[str] = set()
        self._quiet_pool: str | None = None
        self._why, self._since_s, self._moved_s = "", 0.0, 0.0
        self._vacated, self._vacated_s = "", 0.0
        self._patience = 1

    def was_vacated(self, name: str, now_s: float) -> bool:
        """Whether engines have just been moved from a pool because it was hardly used."""
        return name == self._vacated != self.first and now_s - self._vacated_s < VACATED_NOTICE_S

    def order(
        self,
        names: Sequence[str],
        open_: Mapping[str, FrozenEngineReadiness],
        fleets: Mapping[str, FrozenPoolRequirement],
        weights: Sequence[UtilityWeights],
        now_s: float,
    ) -> list[str]:
        """Returns the pools' names, first the one where the engines in demand should be.

        Args:
            names: all pools, the one of the best utility first; at least one.
            open_: by pool, what it has open; empty where no engine is in demand.
            fleets: by pool, what all engines in demand would need; empty where none are.
            weights: of all signatures in demand.
            now_s: the time.
        """
        self._settle(names, open_, fleets)
        if not open_:
            self._why = ""
            self._moved_s = now_s if self.leaving else self._moved_s
        elif fleets:
            why, target, wait_s = self._find_better(names, open_, fleets, weights)
            if why != self._why:
                self._why, self._since_s = why, now_s
            if why and now_s - self._since_s >= wait_s:
                self._move(why, self.first or names[0], target, now_s)
            self._end_move(open_, fleets, now_s)
        return sorted(names, key=lambda name: name != self.first)

    def _settle(
        self,
        names: Sequence[str],
        open_: Mapping[str, FrozenEngineReadiness],
        fleets: Mapping[str, FrozenPoolRequirement],
    ) -> None:
        """Settles on a pool that has half of them, until it is removed or cannot hold them all."""
        able = {name for name, fleet in fleets.items() if fleet.nanousd_per_hour < inf}
        if self.first not in fleets or (able and self.first not in able):
            candidates = [
                n for n in names if n in fleets and open_.get(n, NOTHING).any >= SETTLED_SHARE
            ]
            candidates = [n for n in candidates if not able or n in able]
            self.first = candidates[0] if candidates else None
            if self.leaving and fleets:
                self._patience = min(MOVE_PATIENCE_IDLE_TIMES, 2 * self._patience)
            self.leaving, self._quiet_pool = set(), None

    def _find_better(
        self,
        names: Sequence[str],
        open_: Mapping[str, FrozenEngineReadiness],
        fleets: Mapping[str, FrozenPoolRequirement],
        weights: Sequence[UtilityWeights],
    ) -> tuple[str, str, float]:
        """Why another pool should come first ("" if none), which one, and how long to wait."""
        current = fleets[self.first or names[0]]
        hasty = any(w.alpha > w.beta for w in weights)
        fit = [fleets[n] for n in names if fleets[n].use <= BUSY_SHARE]
        fit = [fleet for fleet in fit if fleet.nanousd_per_hour < inf]
        if hasty and self._quiet_pool in {fleet.pool.name for fleet in fit}:
            return "hasty", str(self._quiet_pool), 0.0
        if current.use > BUSY_SHARE and not all(w.beta > w.alpha for w in weights):
            price = current.pool.shape.price_nanousd_per_hour
            faster = [f for f in fit if f.pool.shape.price_nanousd_per_hour > price]
            if faster:
                return "busy", faster[0].pool.name, current.pool.target_s
        settled = open_.get(current.pool.name, NOTHING).ready >= SETTLED_SHARE
        if current.use <= QUIET_SHARE and settled and not hasty and current.nanousd_per_hour < inf:
            least = min(fit, key=lambda f: f.nanousd_per_hour, default=current)
            if least.nanousd_per_hour < CHEAPER_COST_SHARE * current.nanousd_per_hour:
                return "quiet", least.pool.name, current.pool.keep_alive_s * self._patience
        return "", "", inf

    def _move(self, why: str, source: str, target: str, now_s: float) -> None:
        if why != "quiet" and self._quiet_pool is not None:
            steady = now_s - self._moved_s >= STEADY_S
            times = self._patience // 2 if steady else self._patience * 2
            self._patience = max(1, min(MOVE_PATIENCE_IDLE_TIMES, times))
        self.leaving = (self.leaving | {source}) - {target}
        self._quiet_pool = source if why == "quiet" else None
        self.first, self._moved_s, self._why = target, now_s, ""

    def _end_move(
        self,
        open_: Mapping[str, FrozenEngineReadiness],
        fleets: Mapping[str, FrozenPoolRequirement],
        now_s: float,
    ) -> None:
        """Ends a move when the engines are open in the first pool; undoes it if they are not."""
        current = fleets.get(self.first or "")
        self.leaving &= fleets.keys()
        if not self.leaving or current is None:
            return
        readiness, waited_s = open_.get(current.pool.name, NOTHING), now_s - self._moved_s
        keep_alive_s = current.pool.keep_alive_s
        if readiness.ready >= 1.0 or (
            readiness.ready >= SETTLED_SHARE and waited_s >= keep_alive_s
        ):
            self._vacated, self._vacated_s, self.leaving = self._quiet_pool or "", now_s, set()
        elif readiness.any < SETTLED_SHARE and waited_s >= 2.0 * (
            current.pool.start_s + keep_alive_s
        ):
            self.first = max(self.leaving, key=lambda n: (open_.get(n, NOTHING).any, n))
            self.leaving, self._quiet_pool = set(), None
            self._patience = min(MOVE_PATIENCE_IDLE_TIMES, 2 * self._patience)
