"""Right-sizing: which pool comes first for the engines in demand, as demand comes and goes.

Utility says what an action gets of a device for its share of it. An action that comes once in
minutes gets as much of a fast device as one of hundreds; that the whole device is paid for
meanwhile, or that there is not enough of it, is looked at here. And moving costs a load of every
model, so that engines stay where they are unless there is a reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from flowmesh_core.fleet.demand import Warm
from flowmesh_core.graph.plan import Weights
from flowmesh_core.scheduler.pools import EmptyWorker, PoolView, Rooms
from flowmesh_core.units import Digest

QUIET = 0.33
"""Where no more than this share of what a pool could do is asked of it, a cheaper one will do."""
BUSY = 0.5
"""Where more than this share is, a dearer one is worth it; none is moved to that would be so."""
HALF = 0.5
CHEAPER = 0.8
"""A cheaper one costs less than this share."""


@dataclass(frozen=True, slots=True)
class Fleet:
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
    pool: PoolView, warm: Sequence[Warm], places: Mapping[Digest, Mapping[str, EmptyWorker]]
) -> Fleet:
    """What a pool would need for what is in demand.

    Args:
        pool: the pool.
        warm: what is in demand, the largest first.
        places: signature → pool → what an empty worker of it would give.
    """
    rooms, used, able = Rooms(pool), 0.0, True
    for one in warm:
        empty = places[one.info.signature].get(pool.name)
        mib = one.info.requirement.memory_mib
        if empty is None or not rooms.has_room(mib):
            able = False
        else:
            rooms.take(mib)
            used += empty.share_s(one.work) * one.per_s
    added = max(0, rooms.workers - pool.minimum) * pool.shape.price_nanousd_per_hour
    return Fleet(pool, added if able else inf, used / max(1, rooms.workers))


class Rightsizing:
    """Remembers which pool comes first, and since when another should. Lost without harm.

    Attributes:
        first: that pool; None while no pool holds the engines in demand open.
        leaving: the pool that they are being moved from: it stays as it is until all are open in
            the first, which may find no machine.
        left: the pool that they have been moved from because it was hardly used.
    """

    def __init__(self) -> None:
        """No pool comes first."""
        self.first: str | None = None
        self.leaving: str | None = None
        self.left: str | None = None
        self._before: str | None = None
        self._why, self._since_s = "", 0.0

    def order(
        self,
        names: Sequence[str],
        open_: Mapping[str, float],
        fleets: Mapping[str, Fleet],
        weights: Sequence[Weights],
        now_s: float,
    ) -> list[str]:
        """Puts the pool first that the engines in demand should live in.

        Args:
            names: all pools, that of the best utility first; at least one.
            open_: by pool, the share of the engines that it has open.
            fleets: by pool, what all that is in demand would need; empty where nothing is.
            weights: of all that is in demand.
            now_s: the time.
        """
        self._stay(names, open_, fleets)
        if fleets:
            why, there, wait_s = self._better(names, fleets, weights)
            if why != self._why:
                self._why, self._since_s = why, now_s
            if why and now_s - self._since_s >= wait_s:
                self.leaving, self._why = self.first or names[0], ""
                self._before = self.leaving if why == "quiet" else None
                self.first = there
        if open_.get(self.first or "", 0.0) >= 1.0:
            self.leaving, self.left = None, self._before
        return sorted(names, key=lambda name: name != self.first)

    def _stay(
        self, names: Sequence[str], open_: Mapping[str, float], fleets: Mapping[str, Fleet]
    ) -> None:
        """Settles on a pool that holds half of them, until it is gone or cannot hold them all."""
        here = fleets.get(self.first or "")
        if here is not None and here.nanousd_per_hour == inf:
            here = here if all(f.nanousd_per_hour == inf for f in fleets.values()) else None
        if here is None:
            held = [name for name in names if fleets and open_.get(name, 0.0) >= HALF]
            self.first = held[0] if held else None
            self.leaving = self.left = self._before = None

    def _better(
        self, names: Sequence[str], fleets: Mapping[str, Fleet], weights: Sequence[Weights]
    ) -> tuple[str, str, float]:
        """Why another pool should come first (empty: it need not), which, and how long to wait."""
        here = fleets[self.first or names[0]]
        hasty = any(w.hasty for w in weights)
        fit = [fleets[n] for n in names if fleets[n].use <= BUSY]
        fit = [fleet for fleet in fit if fleet.nanousd_per_hour < inf]
        if hasty and self._before in fleets:
            return "hasty", str(self._before), 0.0
        if here.use > BUSY and not all(w.thrifty for w in weights):
            price = here.pool.shape.price_nanousd_per_hour
            faster = [f for f in fit if f.pool.shape.price_nanousd_per_hour > price]
            if faster:
                return "busy", faster[0].pool.name, here.pool.target_s
        if here.use <= QUIET and not hasty and here.nanousd_per_hour < inf:
            least = min(fit, key=lambda f: f.nanousd_per_hour, default=here)
            if least.nanousd_per_hour < CHEAPER * here.nanousd_per_hour:
                return "quiet", least.pool.name, here.pool.calm_s
        return "", "", inf
