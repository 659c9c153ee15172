"""Frozen copy of preferred pools: where engines in demand should run (ADR 16)."""

from collections.abc import Callable, Mapping, Sequence

from flowmesh_core.units import Digest
from flowmesh_sim.policies.signals.frozen.demand_forecast import Demand
from flowmesh_sim.policies.signals.frozen.engine_relocation import (
    FrozenEngineReadiness,
    FrozenEngineRelocation,
    fleet_of,
)
from flowmesh_sim.policies.signals.frozen.template_worker import (
    FrozenMemoryPacking,
    FrozenTemplateWorker,
    memory_mib,
    utilities,
)
from flowmesh_sim.policies.signals.signal import ScaledPool

DEMAND_GAP_MIN_S = 1.0
UNABLE_UTILITY = -1.0
ARRIVAL_WINDOW_S = 600.0

Able = dict[str, FrozenTemplateWorker]


class FrozenPreferredPools:
    """Gives every signature in demand a pool.

    Attributes:
        found: signature → an idle worker of its preferred pool.
        packings: pool → the memory that the instances which prefer it take.
    """

    def __init__(
        self,
        warm: Sequence[Demand],
        pools: Sequence[ScaledPool],
        able: Callable[[Demand], Sequence[FrozenTemplateWorker]],
        opened: Callable[[Sequence[Demand]], Mapping[str, FrozenEngineReadiness]],
        relocation: FrozenEngineRelocation,
        now_s: float,
    ) -> None:
        """Chooses all pools.

        Args:
            warm: signatures in demand.
            pools: all of them.
            able: returns the idle workers that could run a signature.
            opened: returns what pools have open of some signatures.
            relocation: what was moved before to save money.
            now_s: the time.
        """
        self.found: dict[Digest, FrozenTemplateWorker] = {}
        self.packings = {pool.name: FrozenMemoryPacking(pool) for pool in pools}
        by_size = sorted(
            warm, key=lambda one: (-one.info.requirement.memory_mib, one.info.signature)
        )
        able_of: dict[Digest, Able] = {
            one.info.signature: {e.pool.name: e for e in able(one)} for one in by_size
        }
        recent = [
            one
            for one in by_size
            if one.since_s <= ARRIVAL_WINDOW_S and able_of[one.info.signature]
        ]
        fleets = {pool.name: fleet_of(pool, recent, able_of) for pool in pools} if recent else {}
        for one in by_size:
            templates = able_of[one.info.signature]
            able_of[one.info.signature] = {
                name: e for name, e in templates.items() if one.since_s <= e.pool.keep_alive_s
            }
        by_size = [one for one in by_size if able_of[one.info.signature]]
        best = _by_utility(by_size, pools, able_of)
        weights = [one.weights for one in recent]
        order = relocation.order(best, opened(by_size), fleets, weights, now_s)
        for one in by_size:
            templates = able_of[one.info.signature]
            mib = one.info.requirement.memory_mib
            open_ = [name for name in order if name in templates]
            fitting = [name for name in open_ if self.packings[name].fits(mib)]
            name = (fitting or open_)[0]
            self.found[one.info.signature] = templates[name]
            self.packings[name].take(mib)

    def used_pool(self, able: Sequence[ScaledPool]) -> ScaledPool | None:
        """Returns one of some pools that has workers in any case, for work without a model."""
        used = [pool for pool in able if self.packings[pool.name].workers]
        return max(used, key=lambda p: (self.packings[p.name].workers, memory_mib(p)), default=None)


def _by_utility(
    warm: Sequence[Demand], pools: Sequence[ScaledPool], able_of: Mapping[Digest, Able]
) -> list[str]:
    """Pools by name, the best for all signatures in demand first."""
    scores = {pool.name: 0.0 for pool in pools}
    for one in warm:
        templates = able_of[one.info.signature]
        each = utilities([e.at_home(one.work) for e in templates.values()], one.weights)
        found = dict(zip(templates, each, strict=True))
        for name in scores:
            scores[name] += found.get(name, UNABLE_UTILITY) / max(DEMAND_GAP_MIN_S, one.gap_s)
    return sorted(scores, key=lambda name: (-scores[name], name))
