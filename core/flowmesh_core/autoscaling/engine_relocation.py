"""Decides which pool the engines in demand should be in, and when they move to another one.

Each pool is compared with the present one by the sum of dollars and users' time (``objective``).
While another pool would be better, the difference adds up, and the engines move once it exceeds the
cost of a move. This is ski rental; see ADR 87.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from flowmesh_core.autoscaling.objective import PlacedDemand, waiting_at, workers_for_rates
from flowmesh_core.autoscaling.pool_model import MemoryPacking, PoolView, TemplateWorker
from flowmesh_core.autoscaling.settings import (
    MOVE_FAILURES_MOST,
    ROUND_MOST_S,
    SETTLED_SHARE,
)
from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class PoolRequirement:
    """What it costs to have all engines in demand open in a pool.

    Attributes:
        pool: the pool.
        nanousd_per_hour: what the workers add to the bill. Workers that the pool has in any case
            are left out. Infinity if not all engines fit.
        waiting_nanousd_per_hour: the value of the time that users wait there.
        restart_s: seconds until a new worker has the engines open.
    """

    pool: PoolView
    nanousd_per_hour: float
    waiting_nanousd_per_hour: float = 0.0
    restart_s: float = 0.0

    @property
    def per_hour(self) -> float:
        """Dollars and the value of waiting together, in nano-dollars an hour."""
        return self.nanousd_per_hour + self.waiting_nanousd_per_hour

    @property
    def move_nanousd(self) -> float:
        """What a move to this pool costs: both pools are paid until the engines here take work.

        The cost is at least that of one worker for this time, so that engines do not flap between
        pools that are paid for in any case.
        """
        per_hour = max(self.nanousd_per_hour, self.pool.price_nanousd_per_hour)
        return per_hour * self.restart_s / 3600.0


def fleet_of(
    pool: PoolView,
    warm: Sequence[SignatureDemand],
    places: Mapping[Digest, Mapping[str, TemplateWorker]],
) -> PoolRequirement:
    """Returns what a pool with all engines in demand costs, at the best number of workers.

    Args:
        pool: the pool.
        warm: signatures in demand, the largest first; at least one.
        places: signature → pool → an idle worker of that pool.
    """
    packing, load_s = MemoryPacking(pool), 0.0
    engines: list[PlacedDemand] = []
    for one in warm:
        empty = places[one.info.signature].get(pool.name)
        if empty is None or not packing.fits(one.info.requirement.memory_mib):
            return PoolRequirement(pool, inf)
        packing.take(one.info.requirement.memory_mib)
        engines.append((one, empty))
        load_s = max(load_s, empty.load_s)
    number = workers_for_rates(pool, engines, max(1, packing.workers))
    added = max(0, number - pool.minimum) * pool.shape.price_nanousd_per_hour
    return PoolRequirement(pool, added, waiting_at(engines, number), pool.start_s + load_s)


@dataclass(frozen=True, slots=True)
class EngineReadiness:
    """The share of the arriving actions that find their engines in a pool, at the recent rates.

    Attributes:
        any: engines that are open or loading.
        ready: engines that take work.
    """

    any: float = 0.0
    ready: float = 0.0


NOTHING = EngineReadiness()


class EngineRelocation:
    """Remembers which pool the engines in demand are in, and what other pools would have saved.

    The engines in demand move together, through these states::

        unsettled ── half of the arriving actions find an engine in P ──► settled in P
        settled in P ── Q would have saved what moving there costs ──► moving to Q
        moving to Q ── all ready in Q, or half after restart_s ──► settled in Q, P is given up
        moving to Q ── under half after 2 x restart_s ──► settled where most are
        any ── P is removed, or can no longer hold them ──► settled elsewhere, or unsettled

    What Q would have saved adds up only while P serves half of the actions (ADR 104). While its
    engines load, few actions arrive at them, so a slow pool looks good enough.

    P retains its workers (``leaving``) until Q has the engines. If P were given up at once, the
    signatures in demand would have no engines until Q has loaded them
    (``test_a_pool_is_given_up_only_when_all_engines_are_loaded_in_the_next``). Each failed move to
    a pool doubles what the next one must save. This state may be lost without harm.

    Attributes:
        first: the pool that the engines in demand are in or move to; None while unsettled.
        leaving: pools that the engines move away from. They retain their workers until ``first``
            has the engines.
        moves: how many times the engines have moved to another pool.
    """

    def __init__(self) -> None:
        """Starts unsettled."""
        self.first: str | None = None
        self.leaving: set[str] = set()
        self.moves = 0
        self._regret: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._looked_s: float | None = None
        self._moved_s = 0.0

    def order(
        self,
        names: Sequence[str],
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
        now_s: float,
    ) -> list[str]:
        """Returns the pools' names, starting with the pool where the engines in demand should be.

        Args:
            names: all pools, the one with the best utility first; at least one.
            open_: pool → what it has open; empty if no engine is in demand.
            fleets: pool → what all engines in demand would cost there; empty if there are none.
            now_s: the time.
        """
        passed_s = 0.0 if self._looked_s is None else min(ROUND_MOST_S, now_s - self._looked_s)
        self._looked_s = now_s
        self._settle(names, open_, fleets)
        if not open_:
            self._moved_s = now_s if self.leaving else self._moved_s
        elif fleets:
            is_ready = open_.get(self.first or "", NOTHING).ready >= SETTLED_SHARE
            target = self._better(fleets, passed_s) if is_ready else ""
            if target:
                self._move(target, now_s)
            self._end_move(open_, fleets, now_s)
        return sorted(names, key=lambda name: name != self.first)

    def _settle(
        self,
        names: Sequence[str],
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
    ) -> None:
        able = {n for n, fleet in fleets.items() if fleet.nanousd_per_hour < inf}
        lost = self.first not in names or (bool(able) and self.first not in able)
        if self.first is None or lost:
            candidates = [
                n for n in names if open_.get(n, NOTHING).any >= SETTLED_SHARE or n in self.leaving
            ]
            candidates = [n for n in candidates if not able or n in able]
            self.first = candidates[0] if candidates else None
            self.leaving, self._regret = set(), {}

    def _better(self, fleets: Mapping[str, PoolRequirement], passed_s: float) -> str:
        """Returns the pool that would have saved the cost of moving there by now; "" if none."""
        current = fleets.get(self.first or "")
        if current is None or current.nanousd_per_hour == inf or self.leaving:
            return ""
        found, most = "", 0.0
        for name, fleet in fleets.items():
            if fleet is current or fleet.nanousd_per_hour == inf:
                self._regret.pop(name, None)
                continue
            saved = (current.per_hour - fleet.per_hour) * passed_s / 3600.0
            regret = self._regret[name] = max(0.0, self._regret.get(name, 0.0) + saved)
            left = regret - fleet.move_nanousd * 2 ** self._failures.get(name, 0)
            if left > most:
                found, most = name, left
        return found

    def _move(self, target: str, now_s: float) -> None:
        self.leaving = {self.first or ""}
        self.first, self._moved_s, self._regret = target, now_s, {}
        self.moves += 1

    def _end_move(
        self,
        open_: Mapping[str, EngineReadiness],
        fleets: Mapping[str, PoolRequirement],
        now_s: float,
    ) -> None:
        """Ends a move once the first pool has the engines; undoes it if it takes too long."""
        current = fleets.get(self.first or "")
        self.leaving &= fleets.keys()
        if not self.leaving or current is None:
            return
        name, waited_s = current.pool.name, now_s - self._moved_s
        readiness = open_.get(name, NOTHING)
        half_ready = readiness.ready >= SETTLED_SHARE and waited_s >= current.restart_s
        if readiness.ready >= 1.0 or half_ready:
            self.leaving = set()
            self._failures.pop(name, None)
        elif readiness.any < SETTLED_SHARE and waited_s >= 2.0 * current.restart_s:
            self._failures[name] = min(MOVE_FAILURES_MOST, self._failures.get(name, 0) + 1)
            self.first = max(self.leaving, key=lambda n: (open_.get(n, NOTHING).any, n))
            self.leaving = set()
