"""Preferred pools: where the engine of each signature in demand should run.

Engines in demand stay together: pools are ranked once for all of them, and each engine goes to the
first pool in this order that can run it and still has memory for it. The order is by utility, with
each signature weighted by how often it arrives. However, the pool that has at least half of the
engines open stays first until another one has cost less for long enough (``engine_relocation``).

Engines are packed on workers in the order of their worth per MiB. An engine's worth is the cost of
bringing it back, divided by the time until it is needed again. A worker is kept while its engines
are worth its price (ADR 87).
"""

from collections.abc import Callable, Mapping, Sequence

from flowmesh_core.autoscaling.engine_relocation import EngineReadiness, EngineRelocation, fleet_of
from flowmesh_core.autoscaling.objective import PlacedDemand, value_of_time
from flowmesh_core.autoscaling.pool_model import MemoryPacking, PoolView, TemplateWorker
from flowmesh_core.autoscaling.settings import DEMAND_GAP_MIN_S, UNABLE_UTILITY
from flowmesh_core.fleet.demand import ARRIVAL_WINDOW_S, SignatureDemand
from flowmesh_core.placement.estimates import Estimates
from flowmesh_core.units import Digest

Able = dict[str, TemplateWorker]


class PreferredPools:
    """Gives every signature in demand a pool.

    Attributes:
        found: signature → an idle worker of its preferred pool.
        packings: pool → how the instances that prefer it are packed on workers.
        active: pool → its engines in demand, at the rates of the last ten minutes; none if no
            worker is worth keeping, or if every signature's next arrival is overdue.
        able_of: signature → pool → an idle worker of that pool.
    """

    def __init__(
        self,
        warm: Sequence[SignatureDemand],
        pools: Sequence[PoolView],
        able: Callable[[SignatureDemand], Sequence[TemplateWorker]],
        opened: Callable[[Sequence[SignatureDemand]], Mapping[str, EngineReadiness]],
        relocation: EngineRelocation,
        now_s: float,
    ) -> None:
        """Chooses a pool for each signature.

        Args:
            warm: signatures in demand.
            pools: the pools that can grow.
            able: returns the idle workers that could run a signature, one per pool.
            opened: returns, by pool, how many of some signatures' engines are open.
            relocation: the state of engine moves; it decides which pool is first.
            now_s: the time.
        """
        self.found: dict[Digest, TemplateWorker] = {}
        self.packings = {pool.name: MemoryPacking(pool) for pool in pools}
        by_size = sorted(
            warm, key=lambda one: (-one.info.requirement.memory_mib, one.info.signature)
        )
        self.able_of = able_of = {
            one.info.signature: {e.pool.name: e for e in able(one)} for one in by_size
        }
        recent = [
            one
            for one in by_size
            if one.since_s <= ARRIVAL_WINDOW_S and able_of[one.info.signature]
        ]
        fleets = {pool.name: fleet_of(pool, recent, able_of) for pool in pools} if recent else {}
        by_size = [one for one in by_size if able_of[one.info.signature]]
        best = _by_utility(by_size, pools, able_of)
        order = relocation.order(best, opened(recent), fleets, now_s)
        for one in sorted(by_size, key=lambda one: -_worth_per_mib(one, able_of)):
            templates = able_of[one.info.signature]
            mib = one.info.requirement.memory_mib
            open_ = [name for name in order if name in templates]
            fitting = [name for name in open_ if self.packings[name].fits(mib)]
            name = (fitting or open_)[0]
            self.found[one.info.signature] = templates[name]
            needed = one.since_s <= 0.0
            self.packings[name].take(mib, _worth(one, templates[name]), needed=needed)
        self.active = {pool.name: self._active(pool, recent) for pool in pools}

    def _active(self, pool: PoolView, recent: Sequence[SignatureDemand]) -> list[PlacedDemand]:
        placed = [(one, self.found[one.info.signature]) for one in recent if one.per_s > 0.0]
        engines = [(one, empty) for one, empty in placed if empty.pool is pool]
        goes_on = any(one.since_s < one.gap_s for one, _ in engines)
        is_kept = self.packings[pool.name].retained > 0
        return engines if goes_on and is_kept else []

    def used_pool(self, able: Sequence[PoolView]) -> PoolView | None:
        """Returns a pool that needs workers in any case, for work without a model; None if none."""
        used = [pool for pool in able if self.packings[pool.name].workers]
        return max(used, key=lambda p: (self.packings[p.name].workers, p.memory_mib), default=None)


def _worth(one: SignatureDemand, empty: TemplateWorker) -> float:
    """Returns what an open instance saves, in nano-dollars an hour; it falls while unused."""
    pool = empty.pool
    if one.since_s > pool.keep_most_s:
        return 0.0
    waiting = value_of_time(one.weights) * one.waiting_runs
    restart_s = pool.start_s + empty.load_s
    expected_s = max(DEMAND_GAP_MIN_S, one.gap_s, one.since_s)
    return (waiting + pool.shape.price_nanousd_per_hour) * restart_s / expected_s


def _worth_per_mib(one: SignatureDemand, able_of: Mapping[Digest, Able]) -> float:
    most = max(_worth(one, empty) for empty in able_of[one.info.signature].values())
    return most / max(1, one.info.requirement.memory_mib)


def _by_utility(
    warm: Sequence[SignatureDemand], pools: Sequence[PoolView], able_of: Mapping[Digest, Able]
) -> list[str]:
    """Returns the pools' names, starting with the best one for all signatures in demand."""
    scores = {pool.name: 0.0 for pool in pools}
    for one in warm:
        templates = able_of[one.info.signature]
        utilities = Estimates([e.with_instance(one.work) for e in templates.values()]).utilities(
            one.weights
        )
        found = dict(zip(templates, utilities, strict=True))
        for name in scores:
            scores[name] += found.get(name, UNABLE_UTILITY) / max(DEMAND_GAP_MIN_S, one.gap_s)
    return sorted(scores, key=lambda name: (-scores[name], name))
