"""Frozen copy of the capacity signal: predicted seconds of work by pool.

Every ready action counts in exactly one pool, the one that could run it at the best utility. A
signature in demand has a preferred pool, and its ready and running actions count there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.ready_index import ReadyGroup
from flowmesh_core.fleet.snapshot import InstanceView, SignatureInfo, Snapshot
from flowmesh_core.placement.capacity import instance_capacity
from flowmesh_core.placement.constraints import unmet
from flowmesh_core.units import Digest
from flowmesh_sim.policies.signals.frozen.demand_forecast import FIRST_GAP_S, Demand
from flowmesh_sim.policies.signals.frozen.engine_relocation import (
    FrozenEngineReadiness,
    FrozenEngineRelocation,
)
from flowmesh_sim.policies.signals.frozen.preferred_pools import FrozenPreferredPools
from flowmesh_sim.policies.signals.frozen.template_worker import (
    FrozenTemplateWorker,
    memory_mib,
    most_s,
    utilities,
)
from flowmesh_sim.policies.signals.signal import ScaledPool


@dataclass(slots=True)
class FrozenBacklog:
    """The work that a pool has before it.

    Attributes:
        running_s: worker-seconds until the work of its workers is done.
        ready_s: worker-seconds of the ready actions assigned to it, as shares of full instances.
        actions: ready actions assigned to it.
        busy: workers that have work.
        deadline_workers: workers that the deadlines of its actions need.
        warm: workers that have the instances in demand, or had them and are not replaced yet.
        vacated: whether the engines in demand have just moved to a cheaper pool and are open there.
    """

    running_s: float = 0.0
    ready_s: float = 0.0
    actions: int = 0
    busy: int = 0
    deadline_workers: int = 0
    warm: int = 0
    vacated: bool = False

    @property
    def seconds(self) -> float:
        """Worker-seconds of running and ready work."""
        return self.running_s + self.ready_s


class FrozenBacklogs:
    """The backlog of every pool.

    Attributes:
        backlogs: by pool.
        homes: signature in demand → its preferred pool.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        model: CostModel,
        pools: Sequence[ScaledPool],
        warm: Sequence[Demand],
        relocation: FrozenEngineRelocation,
    ) -> None:
        self._snapshot, self._model, self._pools = snapshot, model, pools
        self._warm = {one.info.signature: one for one in warm}
        self.backlogs = defaultdict[str, FrozenBacklog](FrozenBacklog)
        self._open = defaultdict[str, set[Digest]](set)
        self._local = defaultdict(set, {pool.name: set(pool.local) for pool in pools})
        components = {d for one in warm for d, _ in one.info.components}
        components.update(d for info in snapshot.signatures.values() for d, _ in info.components)
        for worker in snapshot.workers:
            self._open[worker.shape.pool].update(worker.instances)
            self._local[worker.shape.pool].update(components & worker.local.keys())
        self._preferred = FrozenPreferredPools(
            warm, pools, self._template_workers, self._open_of, relocation, snapshot.now_s
        )
        for pool in pools:
            workers = self._preferred.packings[pool.name].workers
            if pool.name in relocation.leaving:
                workers = max(workers, self._count_with_demand(pool))
            self.backlogs[pool.name].warm = workers
            self.backlogs[pool.name].vacated = relocation.was_vacated(pool.name, snapshot.now_s)
        self.homes = {s: template.pool.name for s, template in self._preferred.found.items()}
        self._count_running()
        self._count_ready([g for g in snapshot.ready.groups.values() if not g.like.replica_of])

    def _template_workers(self, one: Demand) -> list[FrozenTemplateWorker]:
        return self._able(one.info, one.work, one.info.capacity)

    def _count_with_demand(self, pool: ScaledPool) -> int:
        workers = [w for w in self._snapshot.workers if w.shape.pool == pool.name]
        found = self._preferred.found.keys()
        return sum(not w.draining and not found.isdisjoint(w.instances) for w in workers)

    def _open_of(self, warm: Sequence[Demand]) -> dict[str, FrozenEngineReadiness]:
        mib = {one.info.signature: one.info.requirement.memory_mib for one in warm}
        every, ready = defaultdict[str, set[Digest]](set), defaultdict[str, set[Digest]](set)
        for worker in self._snapshot.workers:
            if not worker.draining:
                open_here = worker.instances.keys() & mib.keys()
                every[worker.shape.pool] |= open_here
                loaded = {s for s in open_here if worker.instances[s].load_remaining_s <= 0.0}
                ready[worker.shape.pool] |= loaded
        whole = max(1, sum(mib.values()))
        return {
            pool.name: FrozenEngineReadiness(
                sum(mib[s] for s in every[pool.name]) / whole,
                sum(mib[s] for s in ready[pool.name]) / whole,
            )
            for pool in self._pools
            if mib
        }

    def _count_running(self) -> None:
        limits_s = {pool.name: max(pool.target_s, pool.start_s) for pool in self._pools}
        for worker in self._snapshot.workers:
            name = worker.shape.pool
            stays_s, busy = 0.0, False
            for instance in worker.instances.values():
                if not instance.assigned:
                    continue
                busy = True
                pool, more_s = self._counts_at(instance)
                if pool is None or pool.name == name or instance.remaining_s > pool.keep_alive_s:
                    stays_s = max(stays_s, instance.remaining_s - instance.load_remaining_s)
                else:
                    self.backlogs[pool.name].ready_s += more_s
            self.backlogs[name].running_s += min(stays_s, limits_s.get(name, stays_s))
            self.backlogs[name].busy += busy

    def _counts_at(self, instance: InstanceView) -> tuple[ScaledPool | None, float]:
        """The pool that should run an instance's actions, and for how many seconds; or None."""
        preferred = self._preferred.found.get(instance.signature)
        if preferred is not None:
            share_s = preferred.share_s(self._warm[instance.signature].work)
            return preferred.pool, share_s * instance.assigned
        info = self._snapshot.signatures.get(instance.signature)
        if info is None or info.components:
            return None, 0.0
        return self._preferred.used_pool(self._able_pools(info)), instance.remaining_s

    def _count_ready(self, groups: Iterable[ReadyGroup]) -> None:
        groups = list(groups)
        ready = Counter[Digest]()
        for group in groups:
            ready[group.like.signature] += group.count
        found: dict[tuple[Digest, int], list[FrozenTemplateWorker]] = {}
        for group in groups:
            like, work = group.like, group.cohort.work
            info = self._snapshot.signatures[like.signature].with_trust(like.min_trust)
            kind = (like.signature, like.min_trust)
            if kind not in found:
                found[kind] = self._able(info, work, ready[like.signature])
            able = found[kind]
            chosen = self._preferred_pool(able, info) or self._best_pool(able, group)
            if chosen is not None:
                known = self.backlogs[chosen.pool.name]
                known.ready_s += chosen.share_s(work) * group.count
                known.actions += group.count
                needed = _deadline_workers(self._snapshot.now_s, group, chosen)
                known.deadline_workers = max(known.deadline_workers, needed)

    def _able(self, info: SignatureInfo, work: WorkSize, ready: int) -> list[FrozenTemplateWorker]:
        pools = self._able_pools(info)
        return [self._template_worker(pool, info, work, ready) for pool in pools]

    def _able_pools(self, info: SignatureInfo) -> list[ScaledPool]:
        return [pool for pool in self._pools if unmet(info.requirement, pool.shape) is None]

    def _template_worker(
        self, pool: ScaledPool, info: SignatureInfo, work: WorkSize, ready: int
    ) -> FrozenTemplateWorker:
        model, kind = self._model, pool.shape.device_class
        key, size = CostKey.of(info), work.component_bytes
        near = sum(n for digest, n in info.components if digest in self._local[pool.name])
        needed = sum(n for _, n in info.components)
        load_s = model.load_s(key, kind, size) + model.fetch_s(needed - near)
        full = float(instance_capacity(info, None, kind))
        one = self._warm.get(info.signature)
        gap_s = one.gap_s if one else FIRST_GAP_S
        expected = min(1.0, gap_s / max(1.0, pool.keep_alive_s))
        return FrozenTemplateWorker(
            pool=pool,
            alone=model.rate(key, kind, size),
            full=model.rate(key, kind, size, min(full, float(ready))),
            load_s=load_s,
            expected_load_s=load_s * expected
            if info.signature in self._open[pool.name]
            else load_s,
            paid_load_s=load_s / full,
            open_s=gap_s * min(1.0, info.requirement.memory_mib / memory_mib(pool)),
            needed_bytes=needed,
            local_bytes=near,
        )

    def _preferred_pool(
        self, able: Sequence[FrozenTemplateWorker], info: SignatureInfo
    ) -> FrozenTemplateWorker | None:
        """The preferred pool, or one with workers in any case, if that can take more work."""
        preferred = self._preferred.found.get(info.signature)
        if preferred is None and not info.components:
            pool = self._preferred.used_pool([empty.pool for empty in able])
            preferred = next((empty for empty in able if empty.pool is pool), None)
        return preferred if preferred is not None and self._takes_more(preferred.pool) else None

    def _best_pool(
        self, able: Sequence[FrozenTemplateWorker], group: ReadyGroup
    ) -> FrozenTemplateWorker | None:
        """The pool whose idle worker has the best utility; the first of equals."""
        if len(able) <= 1:
            return able[0] if able else None
        work = group.cohort.work
        found = utilities([empty.estimate(work) for empty in able], group.like.weights)
        open_ = [i for i, e in enumerate(able) if self._takes_more(e.pool)]
        open_ = open_ or [i for i, e in enumerate(able) if e.pool.maximum]
        return able[max(open_ or range(len(able)), key=lambda i: (found[i], -i))]

    def _takes_more(self, pool: ScaledPool) -> bool:
        return self.backlogs[pool.name].seconds < most_s(pool)


def _deadline_workers(now_s: float, group: ReadyGroup, chosen: FrozenTemplateWorker) -> int:
    """Workers needed so that the group's actions end by their deadlines, tightest first."""
    deadlines = sorted(action.deadline_s for action in group if action.deadline_s != inf)
    needed, share_s = 0, chosen.share_s(group.cohort.work)
    for number, deadline_s in enumerate(deadlines, start=1):
        remaining_s = deadline_s - now_s - chosen.load_s
        if remaining_s > 0.0:
            needed = max(needed, ceil(number * share_s / remaining_s))
    return needed
