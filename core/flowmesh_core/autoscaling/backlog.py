"""The capacity signal: predicted seconds of work by pool.

The operator's pools read it every second. Every ready action counts in exactly one pool: the one
that could run it at the best utility. Each pool is judged by an idle worker of its shape, so a pool
without workers is compared too. There are two exceptions. A signature in demand has a preferred
pool (``preferred_pools``), where its ready and running actions count. An action without a model
counts in a pool that needs workers in any case. All other running work counts where it runs.

``PoolSizer`` turns the signal into a number of workers. The functions here keep no state; the
caller's ``EngineRelocation`` does.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, fsum, inf
from types import MappingProxyType

import msgspec

from flowmesh_core.autoscaling.bounded_growth import split_workers
from flowmesh_core.autoscaling.engine_relocation import EngineReadiness, EngineRelocation
from flowmesh_core.autoscaling.objective import (
    arriving,
    value_of_time,
    workers_for_rates,
    workers_that_pay,
)
from flowmesh_core.autoscaling.overflow import HelpingPool, UnfinishedWork, overflow_workers
from flowmesh_core.autoscaling.pool_model import PoolView, TemplateWorker
from flowmesh_core.autoscaling.preferred_pools import PreferredPools
from flowmesh_core.costmodel import CostKey, CostModel
from flowmesh_core.fleet.demand import FIRST_GAP_S, SignatureDemand
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.ready_index import ReadyGroup
from flowmesh_core.fleet.snapshot import InstanceView, SignatureInfo, Snapshot
from flowmesh_core.fleet.worker_bounds import WorkerBounds
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement.action_groups import ActionGroup, groups_of
from flowmesh_core.placement.bound_reservations import first_in_bounds
from flowmesh_core.placement.capacity import instance_capacity
from flowmesh_core.placement.constraints import unmet_in_pool
from flowmesh_core.placement.estimates import Estimates
from flowmesh_core.units import Digest

DEFAULT_WEIGHTS = UtilityWeights()


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work that a pool still has to do.

    Attributes:
        running_s: worker-seconds until the work of its workers is done. More workers do not end
            running work sooner, so no worker counts for more seconds than one worker may have
            queued.
        ready_s: worker-seconds of the ready actions assigned to the pool, as shares of full
            instances.
        start_s: seconds until one more worker has loaded the instances that these actions need.
        waiting_nanousd_per_hour: the value of time of the runs that wait for the pool's work.
        actions: ready actions assigned to the pool.
        elsewhere: actions that run in another pool although their engine prefers this one.
        busy: workers that have work or replicas of services; the pool never shrinks below them.
        deadline_workers: workers that the deadlines of the pool's actions need.
        for_open_steps: workers with instances that open steps will need, if those are worth a
            worker's price.
        warm: workers to keep for instances in demand: either the instances are worth it, or they
            move to another pool and are not ready there yet. No worker is started for them.
        steady: workers that pay at the rates of the last ten minutes.
        overflow: further workers that help another pool, which is at its maximum.
        arriving: worker-seconds of work that arrive in a second, at the same rates.
        serving: workers that have replicas of services, plus those needed for replicas that are
            not placed yet.
        occupied: workers that are full of replicas of services, so they cannot run waiting actions.
        substitutable: whether the pool's missing workers (``pool_supply``) could run work that
            waits for the first worker of another pool. The first worker to connect runs it.
        unbounded: the same backlog without the ready actions of namespaces with a limit on their
            workers; None if there are no such actions.
        bounded: for each of these namespaces, how many more workers it may use in this pool. The
            sum over all pools is at most what its quota leaves.
    """

    running_s: float = 0.0
    ready_s: float = 0.0
    start_s: float = 0.0
    waiting_nanousd_per_hour: float = 0.0
    actions: int = 0
    elsewhere: int = 0
    busy: int = 0
    deadline_workers: int = 0
    for_open_steps: int = 0
    warm: int = 0
    steady: int = 0
    overflow: int = 0
    arriving: float = 0.0
    substitutable: bool = False
    serving: int = 0
    occupied: int = 0
    unbounded: "Backlog | None" = None
    bounded: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The signal: worker-seconds of running and ready work."""
        return self.running_s + self.ready_s

    @property
    def usable(self) -> int:
        """How many workers can share the work: each action runs on one worker."""
        return self.busy + self.actions + self.elsewhere

    def workers_that_pay(self, pool: PoolView, most: int) -> int:
        """Returns how many workers of its pool save more waiting than they cost."""
        return workers_that_pay(
            pool.price_nanousd_per_hour,
            self.seconds,
            self.waiting_nanousd_per_hour,
            max(pool.start_s, self.start_s),
            pool.idle_s,
            most,
            self.arriving,
        )


@dataclass(frozen=True, slots=True)
class CapacitySignal:
    """What pools scale by.

    Attributes:
        backlogs: by pool.
        preferred: signature in demand → its preferred pool.
        overflow: signature in demand → the pools that should have workers for it because its
            preferred pool is at its maximum.
    """

    backlogs: dict[str, Backlog]
    preferred: dict[Digest, str]
    overflow: dict[Digest, set[str]]


def signal_of(
    snapshot: Snapshot,
    model: CostModel,
    pools: Sequence[PoolView],
    warm: Sequence[SignatureDemand] = (),
    relocation: EngineRelocation | None = None,
    serving: Mapping[str, int] = MappingProxyType({}),
) -> CapacitySignal:
    """Returns the backlog of every pool, and the preferred pool of each signature in demand.

    Args:
        snapshot: of the machine; its workers name their pools.
        model: predicts durations and loading times.
        pools: the pools that can grow. Ready actions that no pool can run count nowhere (their
            rejection says why); actions in backoff count once they are due.
        warm: signatures in demand; each gets instances in its preferred pool.
        relocation: the caller's state of engine moves, kept from one signal to the next.
        serving: pool → workers that replicas of services need, from the services' planner.
    """
    moves = relocation or EngineRelocation()
    found = _CapacitySignal(snapshot, model, pools, warm, moves).found()
    for name, workers in serving.items():
        found.backlogs[name] = replace(found.backlogs.get(name, Backlog()), serving=workers)
    return found


class _CapacitySignal:
    """Computes one capacity signal."""

    def __init__(
        self,
        snapshot: Snapshot,
        model: CostModel,
        pools: Sequence[PoolView],
        warm: Sequence[SignatureDemand],
        relocation: EngineRelocation,
    ) -> None:
        self._snapshot, self._model = snapshot, model
        self._pools = pools
        self._warm = {one.info.signature: one for one in warm}
        self._found = {pool.name: Backlog() for pool in pools}
        self._unfinished = defaultdict[tuple[str, Digest], UnfinishedWork](UnfinishedWork)
        self._bounded_s = defaultdict[str, dict[str, float]](dict)
        self._elsewhere: dict[str, str] = {}
        self._staffed = {w.shape.pool for w in snapshot.workers if not w.draining}
        self._most_s = {pool.name: max(pool.target_s, pool.start_s) for pool in pools}
        self._open: dict[str, set[Digest]] = {pool.name: set() for pool in pools}
        self._local = {pool.name: set(pool.local) for pool in pools}
        components = {d for one in warm for d, _ in one.info.components}
        components.update(d for info in snapshot.signatures.values() for d, _ in info.components)
        for worker in snapshot.workers:
            name = worker.shape.pool
            self._found.setdefault(name, Backlog())
            self._open.setdefault(name, set()).update(worker.instances)
            # Assume that a pool's next worker has the same components on disk as its present ones.
            self._local.setdefault(name, set()).update(components & worker.local.keys())
        self._preferred_pools = PreferredPools(
            warm, pools, self._template_workers, self._open_of, relocation, snapshot.now_s
        )
        for pool in pools:
            packing = self._preferred_pools.packings[pool.name]
            workers = packing.retained
            if pool.name in relocation.leaving:
                workers = max(workers, self._count_with_demand(pool))
            engines = self._preferred_pools.active[pool.name]
            self._found[pool.name] = replace(
                self._found[pool.name],
                warm=workers,
                for_open_steps=min(workers, sum(packing.needed)),
                steady=workers_for_rates(pool, engines) if engines else 0,
                arriving=arriving(engines),
            )

    def found(self) -> CapacitySignal:
        """Returns every pool's backlog."""
        self._count_running()
        self._count_ready()
        overflow = self._count_overflow()
        preferred = {
            signature: template.pool.name
            for signature, template in self._preferred_pools.found.items()
        }
        return CapacitySignal(self._found, preferred, overflow)

    def _count_overflow(self) -> dict[Digest, set[str]]:
        """Counts the workers that help pools at their maximum; returns their pools by signature."""
        overflow = defaultdict[Digest, set[str]](set)
        able_of = self._preferred_pools.able_of
        for pool in self._pools:
            engines, known = self._preferred_pools.active[pool.name], self._found[pool.name]
            if not engines or self._takes_more(pool) or not pool.most:
                continue
            signatures = [one.info.signature for one, _ in engines]
            unfinished = {s: self._unfinished[pool.name, s] for s in signatures}
            helping = {p.name: self._helping(p, signatures) for p in self._pools if p is not pool}
            added = overflow_workers(pool, engines, able_of, known.seconds, unfinished, helping)
            for name, workers in added.items():
                other = self._found[name]
                self._found[name] = replace(other, overflow=other.overflow + workers)
            for signature in signatures:
                overflow[signature] |= added.keys() & able_of[signature].keys()
        return overflow

    def _helping(self, pool: PoolView, signatures: Collection[Digest]) -> HelpingPool:
        """Returns what a pool can do for another one with these engines."""
        known = self._found[pool.name]
        helpers = sum(
            worker.shape.pool == pool.name
            and any(s in worker.instances and worker.instances[s].assigned for s in signatures)
            for worker in self._snapshot.workers
        )
        return HelpingPool(max(0, pool.most - known.steady - known.overflow), helpers)

    def _template_workers(self, one: SignatureDemand) -> list[TemplateWorker]:
        """The idle workers that could prewarm a signature, one per pool."""
        return self._able(one.info, one.work, one.info.capacity)

    def _count_with_demand(self, pool: PoolView) -> int:
        """Returns how many workers of a pool have an instance whose signature is in demand."""
        workers = [
            w for w in self._snapshot.workers if w.shape.pool == pool.name and not w.draining
        ]
        return sum(not self._preferred_pools.found.keys().isdisjoint(w.instances) for w in workers)

    def _open_of(self, warm: Sequence[SignatureDemand]) -> dict[str, EngineReadiness]:
        """Returns pool → the share of the arriving actions whose engines its workers have open."""
        per_s = {one.info.signature: one.per_s for one in warm}
        every, ready = defaultdict[str, set[Digest]](set), defaultdict[str, set[Digest]](set)
        for worker in self._snapshot.workers:
            if not worker.draining:
                open_here = worker.instances.keys() & per_s.keys()
                every[worker.shape.pool] |= open_here
                loaded = {s for s in open_here if worker.instances[s].load_remaining_s <= 0.0}
                ready[worker.shape.pool] |= loaded
        # Exact sums, so that a pool with all engines has a share of exactly 1 in any order.
        whole = fsum(per_s.values())
        return {
            pool.name: EngineReadiness(
                fsum(per_s[s] for s in every[pool.name]) / whole,
                fsum(per_s[s] for s in ready[pool.name]) / whole,
            )
            for pool in self._pools
            if whole
        }

    def _count_running(self) -> None:
        uses = self._snapshot.worker_uses.values()
        bounded = frozenset[str]().union(*(use.workers for use in uses))
        for worker in self._snapshot.workers:
            name = worker.shape.pool
            stays_s, busy, waiting = 0.0, worker.replicas > 0, 0.0
            for instance in worker.instances.values():
                if not instance.assigned:
                    continue
                busy = True
                reserved = name in self._snapshot.reserved_pools
                pool, more_s = (None, 0.0) if reserved else self._counts_at(instance)
                value = self._value(instance.signature) * instance.assigned
                if worker.name not in bounded:
                    counts_at = pool.name if pool is not None else name
                    self._unfinished[counts_at, instance.signature].add(instance.assigned, value)
                if pool is None or pool.name == name:
                    # More workers do not end a load sooner, so its remaining time is left out.
                    stays_s = max(stays_s, instance.remaining_s - instance.load_remaining_s)
                    waiting += value
                else:
                    preferred = self._found[pool.name]
                    self._found[pool.name] = replace(
                        preferred,
                        ready_s=preferred.ready_s + more_s,
                        elsewhere=preferred.elsewhere + instance.assigned,
                        waiting_nanousd_per_hour=preferred.waiting_nanousd_per_hour + value,
                    )
            stays_s = min(stays_s, self._most_s.get(name, stays_s))
            known = self._found[name]
            self._found[name] = replace(
                known,
                running_s=known.running_s + stays_s,
                busy=known.busy + busy,
                waiting_nanousd_per_hour=known.waiting_nanousd_per_hour + waiting,
            )

    def _value(self, signature: Digest, weights: UtilityWeights = DEFAULT_WEIGHTS) -> float:
        """Returns the value of time of runs that wait for an action, in nano-dollars an hour."""
        one = self._warm.get(signature)
        return value_of_time(one.weights) * one.waiting_runs if one else value_of_time(weights)

    def _counts_at(self, instance: InstanceView) -> tuple[PoolView | None, float]:
        """Returns the pool that an instance's actions count in, and their worker-seconds there.

        The pool is None if they count where they run. That includes actions that end later than a
        new worker of the other pool could start.
        """
        preferred = self._preferred_pools.found.get(instance.signature)
        if preferred is not None:
            restart_s = preferred.pool.start_s + preferred.load_s
            more_s = preferred.share_s(self._warm[instance.signature].work) * instance.assigned
            return (preferred.pool if instance.remaining_s <= restart_s else None), more_s
        info = self._snapshot.signatures.get(instance.signature)
        if info is None or info.components:
            return None, 0.0
        used = self._preferred_pools.used_pool(self._able_pools(info))
        if used is not None and instance.remaining_s > used.start_s:
            used = None
        return used, instance.remaining_s

    def _count_ready(self) -> None:
        bounds = WorkerBounds(self._snapshot.worker_uses)
        at_bound = self._first_elsewhere(bounds)
        groups = _startable(self._snapshot, bounds, at_bound)
        ready = Counter[Digest]()
        for group in groups:
            ready[group.info.signature] += group.count
        found: dict[tuple[Digest, int, frozenset[str]], list[TemplateWorker]] = {}
        for group in groups:
            signature, pools = group.info.signature, group.reserved_pools
            kind = (signature, group.info.requirement.min_trust, pools)
            if kind not in found:
                found[kind] = self._able(group.info, group.work, ready[signature], pools)
            able = found[kind]
            chosen = self._preferred(able, group.info) or self._best_pool(
                able, group.work, group.weights
            )
            if chosen is not None:
                name = chosen.pool.name
                known = self._with_bound(self._found[name], group, chosen)
                if group.ready in at_bound:
                    self._elsewhere.update(dict.fromkeys(group.bounded_tenants, name))
                known = _with_group(known, self._snapshot, group, chosen)
                value = self._value(signature, group.weights) * group.count
                if not group.bounded_tenants and kind[1:] == (0, frozenset()):
                    self._unfinished[name, signature].add(group.count, value)
                self._found[name] = replace(
                    known,
                    occupied=max(known.occupied, self._occupied(name, group.info)),
                    start_s=max(known.start_s, chosen.pool.start_s + chosen.load_s),
                    waiting_nanousd_per_hour=known.waiting_nanousd_per_hour + value,
                )
                if name not in self._staffed:
                    self._keep_requests(able)
        self._split_bounds(bounds)

    def _with_bound(self, known: Backlog, group: ActionGroup, chosen: TemplateWorker) -> Backlog:
        """Returns a pool's backlog, prepared for a group whose tenant has a bound on its workers.

        An action that several tenants want counts for none of them, so it is not bounded.
        """
        if len(group.bounded_tenants) != 1:
            return known
        (tenant,) = group.bounded_tenants
        ready_s = self._bounded_s[tenant]
        more_s = chosen.share_s(group.work) * group.count
        ready_s[chosen.pool.name] = ready_s.get(chosen.pool.name, 0.0) + more_s
        return replace(known, unbounded=known.unbounded or known)

    def _split_bounds(self, bounds: WorkerBounds) -> None:
        """Divides the workers that bounded namespaces may still use among the pools."""
        most = {pool.name: pool.most for pool in self._pools}
        room = {name: max(0, n - self._found[name].busy) for name, n in most.items()}
        for tenant, ready_s in self._bounded_s.items():
            parts = split_workers(bounds.free(tenant), ready_s, room)
            if not bounds.free(tenant) and tenant in self._elsewhere:
                parts[self._elsewhere[tenant]] = 1
            for name, part in parts.items():
                known = self._found[name]
                self._found[name] = replace(known, bounded={**known.bounded, tenant: part})

    def _first_elsewhere(self, bounds: WorkerBounds) -> set[ReadyGroup]:
        """Returns the ready groups that are first in a namespace and cannot run on its workers.

        Such a group counts for one worker even if the namespace is at its bound: once that worker
        is there, the namespace gives up one of the workers that it uses (``bound_reservations``).
        """
        if not self._snapshot.worker_uses:
            return set()
        every = (group for group in groups_of(self._snapshot) if not group.replica_of)
        groups = [group for group in every if bounds.may_use_any(group.bounded_tenants)]
        kept = {g.ready for g in groups if self._runs_on(bounds.used(g.bounded_tenants), g)}
        able = (g for g in groups if g.ready in kept or self._able_pools(g.info, g.reserved_pools))
        return {group.ready for group, _ in first_in_bounds(able).values()} - kept

    def _runs_on(self, workers: Collection[str], group: ActionGroup) -> bool:
        """Whether at least one of these workers meets a group's hard constraints."""
        requirement, reserved = group.info.requirement, self._snapshot.reserved_pools
        shapes = (worker.shape for worker in self._snapshot.workers if worker.name in workers)
        unmet = (unmet_in_pool(requirement, s, reserved, group.reserved_pools) for s in shapes)
        return any(cause is None for cause in unmet)

    def _occupied(self, pool: str, info: SignatureInfo) -> int:
        """Returns how many workers of a pool can never hold an engine beside their replicas."""
        return sum(
            worker.shape.pool == pool
            and not worker.draining
            and worker.replicas > 0
            and info.signature not in worker.instances
            and worker.shape.device_memory_mib * worker.shape.devices - worker.replica_memory_mib
            < info.requirement.memory_mib
            for worker in self._snapshot.workers
        )

    def _keep_requests(self, able: Sequence[TemplateWorker]) -> None:
        """Marks pools that are short of workers and could run this, so they keep their requests."""
        for pool in (empty.pool for empty in able):
            if pool.supply is not None:
                self._found[pool.name] = replace(self._found[pool.name], substitutable=True)

    def _able(
        self,
        info: SignatureInfo,
        work: WorkSize,
        ready: int,
        reserved_pools: Collection[str] = (),
    ) -> list[TemplateWorker]:
        """Returns an idle worker of each pool that can run a signature's ``ready`` ready actions.

        The actions may run in the reserved pools named in ``reserved_pools``. Demand ahead of work
        has no namespace, so a reserved pool prewarms nothing.
        """
        pools = self._able_pools(info, reserved_pools)
        return [self._template_worker(pool, info, work, ready) for pool in pools]

    def _able_pools(
        self, info: SignatureInfo, reserved_pools: Collection[str] = ()
    ) -> list[PoolView]:
        reserved = self._snapshot.reserved_pools
        return [
            pool
            for pool in self._pools
            if unmet_in_pool(info.requirement, pool.shape, reserved, reserved_pools) is None
        ]

    def _template_worker(
        self, pool: PoolView, info: SignatureInfo, work: WorkSize, ready: int
    ) -> TemplateWorker:
        model, kind = self._model, pool.shape.device_class
        key, size = CostKey.of(info), work.component_bytes
        near = sum(n for digest, n in info.components if digest in self._local[pool.name])
        needed = sum(n for _, n in info.components)
        load_s = model.load_s(key, kind, size) + model.fetch_s(needed - near, pool.name)
        full = float(instance_capacity(info, None, kind))
        one = self._warm.get(info.signature)
        gap_s = one.gap_s if one else FIRST_GAP_S
        signature_is_open = info.signature in self._open[pool.name]
        return TemplateWorker(
            pool=pool,
            alone=model.rate(key, kind, size),
            full=model.rate(key, kind, size, min(full, float(ready))),
            load_s=load_s,
            expected_load_s=0.0 if signature_is_open else load_s,
            paid_load_s=load_s / full,
            open_s=gap_s * min(1.0, info.requirement.memory_mib / pool.memory_mib),
            needed_bytes=needed,
            local_bytes=near,
        )

    def _preferred(
        self, able: Sequence[TemplateWorker], info: SignatureInfo
    ) -> TemplateWorker | None:
        """Returns a signature's pool, if that pool can take more work; else None.

        It is the preferred pool, or for actions without a model one that needs workers in any case.
        """
        preferred = self._preferred_pools.found.get(info.signature)
        if preferred is None and not info.components:
            pool = self._preferred_pools.used_pool([empty.pool for empty in able])
            preferred = next((empty for empty in able if empty.pool is pool), None)
        return preferred if preferred is not None and self._takes_more(preferred.pool) else None

    def _best_pool(
        self, able: Sequence[TemplateWorker], work: WorkSize, weights: UtilityWeights
    ) -> TemplateWorker | None:
        """Returns the pool whose idle worker has the best utility; the first of equals.

        A pool that has enough work and cannot grow is passed over if there is another one:
        otherwise the work that it cannot do in time would count in no pool that can grow.
        """
        if not able:
            return None
        if len(able) == 1:
            return able[0]
        utilities = Estimates([empty.estimate(work) for empty in able]).utilities(weights)
        open_ = [i for i, e in enumerate(able) if self._takes_more(e.pool)]
        open_ = open_ or [i for i, e in enumerate(able) if e.pool.maximum]
        best = max(open_ or range(len(able)), key=lambda i: (utilities[i], -i))
        return able[best]

    def _takes_more(self, pool: PoolView) -> bool:
        known = self._found[pool.name]
        wanted = known.workers_that_pay(pool, min(pool.most, known.usable) + 1)
        return 0 < pool.most >= wanted


def _startable(
    snapshot: Snapshot, bounds: WorkerBounds, at_bound: Collection[ReadyGroup]
) -> list[ActionGroup]:
    """Returns the ready groups that their tenants' quotas let start now.

    A quota can hold back user code. It can also hold back work of tenants that use as many workers
    as they may, except the groups in ``at_bound``. Groups of a single tenant with a bound on its
    workers come last.
    """
    free = {tenant: calls.free for tenant, calls in snapshot.code_calls.items()}
    found = []
    for group in groups_of(snapshot):
        waits = bounds.reached(group.bounded_tenants) and group.ready not in at_bound
        if group.replica_of or waits:
            continue
        if group.code_tenant in free:
            count = min(group.count, max(0, free[group.code_tenant]))
            free[group.code_tenant] -= count
            if not count:
                continue
            found.append(msgspec.structs.replace(group, count=count))
        else:
            found.append(group)
    found.sort(key=lambda group: len(group.bounded_tenants) == 1)
    return found


def _with_group(
    known: Backlog, snapshot: Snapshot, group: ActionGroup, chosen: TemplateWorker
) -> Backlog:
    """Adds a group to a pool's backlog."""
    return replace(
        known,
        ready_s=known.ready_s + chosen.share_s(group.work) * group.count,
        actions=known.actions + group.count,
        deadline_workers=max(known.deadline_workers, _deadline_workers(snapshot, group, chosen)),
    )


def _deadline_workers(snapshot: Snapshot, group: ActionGroup, chosen: TemplateWorker) -> int:
    """Returns the workers that the group needs to meet its deadlines, the earliest one first."""
    deadlines = sorted(action.deadline_s for action in group.ready if action.deadline_s != inf)
    needed, share_s = 0, chosen.share_s(group.work)
    for number, deadline_s in enumerate(deadlines, start=1):
        remaining_s = deadline_s - snapshot.now_s - chosen.load_s
        if remaining_s > 0.0:
            needed = max(needed, min(number, ceil(number * share_s / remaining_s)))
    return needed
