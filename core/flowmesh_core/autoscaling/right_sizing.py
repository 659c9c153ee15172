"""Right-sizing: which pool comes first for the engines in demand, as demand comes and goes.

Utility says what an action gets of a device for its share of it. An action that comes once in
minutes gets as much of a fast device as one of hundreds; that the whole device is paid for
meanwhile, or that there is not enough of it, is looked at here. And moving costs a load of every
model, so that engines stay where they are unless there is a reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from flowmesh_core.autoscaling.pool_model import MemoryPacking, PoolView, TemplateWorker
from flowmesh_core.autoscaling.settings import (
    BUSY_SHARE,
    CHEAPER_COST_SHARE,
    MOVE_PATIENCE_IDLE_TIMES,
    QUIET_SHARE,
    SETTLED_SHARE,
    STEADY_S,
    VACATED_NOTICE_S,
)
from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class PoolRequirement:
    """The workers that a pool would need to hold open all engines that are in demand.

    Attributes:
        pool: the pool.
        nanousd_per_hour: what they add to the bill, so without those that the pool keeps in any
            case; infinity where it cannot hold all.
        use: share of what they could do that is asked of them.
    """

    pool: PoolView
    nanousd_per_hour: float
    use: float


def fleet_of(
    pool: PoolView,
    warm: Sequence[SignatureDemand],
    places: Mapping[Digest, Mapping[str, TemplateWorker]],
) -> PoolRequirement:
    """What a pool would need for what is in demand.

    Args:
        pool: the pool.
        warm: what is in demand, the largest first.
        places: signature → pool → what an empty worker of it would give.
    """
    rooms, used, able = MemoryPacking(pool), 0.0, bool(warm)
    for one in warm:
        empty = places[one.info.signature].get(pool.name)
        mib = one.info.requirement.memory_mib
        if empty is None or not rooms.has_room(mib):
            able = False
        else:
            rooms.take(mib)
            used += empty.share_s(one.work) * one.per_s
    added = max(0, rooms.workers - pool.minimum) * pool.shape.price_nanousd_per_hour
    return PoolRequirement(pool, added if able else inf, used / max(1, rooms.workers))


@dataclass(frozen=True, slots=True)
class EngineReadiness:
    """What a pool has open of the engines that are to be held open.

    Attributes:
        any: share that is open, or opening; ``ready`` the share that takes work.
    """

    any: float = 0.0
    ready: float = 0.0


NOTHING = EngineReadiness()


class RightSizing:
    """Remembers which pool comes first, and since when another should. Lost without harm.

    Attributes:
        first: that pool; None while no pool holds the engines in demand open.
        leaving: pools that they are being moved from: they stay as they are until the first has
            the engines open.
        moves: how often engines were moved.
    """

    def __init__(self) -> None:
        """No pool comes first."""
        self.first: str | None = None
        self.leaving: set[str] = set()
        self.moves = 0
        self._before: str | None = None
        self._why, self._since_s, self._moved_s = "", 0.0, 0.0
        self._left, self._left_s = "", 0.0
        self._patience = 1

    def left(self, name: str, now_s: float) -> bool:
        """Whether engines have just been moved from a pool because it was hardly used."""
        return name == self._left != self.first and now_s - self._left_s < VACATED_NOTICE_S

    def order(
        self,
        names: Sequence[str],
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
        weights: Sequence[UtilityWeights],
        now_s: float,
    ) -> list[str]:
        """Puts the pool first that the engines in demand should live in.

        Args:
            names: all pools, that of the best utility first; at least one.
            open_: by pool, what it has open; empty where no engine is to be held open.
            fleets: by pool, what all that is in demand would need; empty where nothing is.
            weights: of all that is in demand.
            now_s: the time.
        """
        self._stay(names, open_, fleets)
        if not open_:
            self._why = ""
            self._moved_s = now_s if self.leaving else self._moved_s
        elif fleets:
            why, there, wait_s = self._better(names, open_, fleets, weights)
            if why != self._why:
                self._why, self._since_s = why, now_s
            if why and now_s - self._since_s >= wait_s:
                self._move(why, self.first or names[0], there, now_s)
            self._arrive(open_, fleets, now_s)
        return sorted(names, key=lambda name: name != self.first)

    def _stay(
        self,
        names: Sequence[str],
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
    ) -> None:
        """Settles on a pool that holds half of them, until it is gone or cannot hold them all."""
        able = {name for name, fleet in fleets.items() if fleet.nanousd_per_hour < inf}
        if self.first not in fleets or (able and self.first not in able):
            held = [n for n in names if n in fleets and open_.get(n, NOTHING).any >= SETTLED_SHARE]
            held = [n for n in held if not able or n in able]
            self.first = held[0] if held else None
            if self.leaving and fleets:
                self._patience = min(MOVE_PATIENCE_IDLE_TIMES, 2 * self._patience)
            self.leaving, self._before = set(), None

    def _better(
        self,
        names: Sequence[str],
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
        weights: Sequence[UtilityWeights],
    ) -> tuple[str, str, float]:
        """Why another pool should come first (empty: it need not), which, and how long to wait."""
        here = fleets[self.first or names[0]]
        hasty = any(w.hasty for w in weights)
        fit = [fleets[n] for n in names if fleets[n].use <= BUSY_SHARE]
        fit = [fleet for fleet in fit if fleet.nanousd_per_hour < inf]
        if hasty and self._before in {fleet.pool.name for fleet in fit}:
            return "hasty", str(self._before), 0.0
        if here.use > BUSY_SHARE and not all(w.thrifty for w in weights):
            price = here.pool.shape.price_nanousd_per_hour
            faster = [f for f in fit if f.pool.shape.price_nanousd_per_hour > price]
            if faster:
                return "busy", faster[0].pool.name, here.pool.target_s
        settled = open_.get(here.pool.name, NOTHING).ready >= SETTLED_SHARE
        if here.use <= QUIET_SHARE and settled and not hasty and here.nanousd_per_hour < inf:
            least = min(fit, key=lambda f: f.nanousd_per_hour, default=here)
            if least.nanousd_per_hour < CHEAPER_COST_SHARE * here.nanousd_per_hour:
                return "quiet", least.pool.name, here.pool.calm_s * self._patience
        return "", "", inf

    def _move(self, why: str, here: str, there: str, now_s: float) -> None:
        if why != "quiet" and self._before is not None:
            steady = now_s - self._moved_s >= STEADY_S
            times = self._patience // 2 if steady else self._patience * 2
            self._patience = max(1, min(MOVE_PATIENCE_IDLE_TIMES, times))
        self.leaving = (self.leaving | {here}) - {there}
        self._before = here if why == "quiet" else None
        self.first, self._moved_s, self._why = there, now_s, ""
        self.moves += 1

    def _arrive(
        self,
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
        now_s: float,
    ) -> None:
        """Gives pools up when engines are open in the first; goes back where they do not open."""
        here = fleets.get(self.first or "")
        self.leaving &= fleets.keys()
        if not self.leaving or here is None:
            return
        there, waited_s = open_.get(here.pool.name, NOTHING), now_s - self._moved_s
        calm_s = here.pool.calm_s
        if there.ready >= 1.0 or (there.ready >= SETTLED_SHARE and waited_s >= calm_s):
            self._left, self._left_s, self.leaving = self._before or "", now_s, set()
        elif there.any < SETTLED_SHARE and waited_s >= 2.0 * (here.pool.start_s + calm_s):
            self.first = max(self.leaving, key=lambda n: (open_.get(n, NOTHING).any, n))
            self.leaving, self._before = set(), None
            self._patience = min(MOVE_PATIENCE_IDLE_TIMES, 2 * self._patience)
