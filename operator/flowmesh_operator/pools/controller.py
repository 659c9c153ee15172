"""Reconciles worker pools: their objects with the spec, their sizes with the backlog.

Level-triggered, in rounds: each observes objects, workers and backlogs and makes the changes that
they require. The leader runs it in the event loop of its control plane, so nothing else changes
state within a step.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_core.autoscaling.backlog import Backlog
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.kube.client import NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import DEPLOYMENTS, PODS
from flowmesh_operator.kube.labels import DELETION_COST, POOL_LABEL, object_name
from flowmesh_operator.kube.object_status import ObjectStatusWriter, shown
from flowmesh_operator.pools.autoscaling import (
    UNMARKED,
    PodObservation,
    PoolObservation,
    ScalingPlan,
)
from flowmesh_operator.pools.conditions import PoolCondition, PoolReason
from flowmesh_operator.pools.observation import pod_seen, worker_seen
from flowmesh_operator.pools.pool import PoolEntry
from flowmesh_operator.pools.reconcile import Reconciler
from flowmesh_operator.pools.reservations import reserved_pools
from flowmesh_operator.pools.start_problems import start_problem
from flowmesh_operator.pools.status import (
    PoolNumbers,
    asleep,
    decision,
    distrust,
    readiness,
    scaling,
    status_of,
    warm,
)
from flowmesh_operator.pools.trust import directory_refusal
from flowmesh_operator.ports import CapacitySignals, Epoch, PoolReservations, WorkerFleet
from flowmesh_operator.settings import OperatorSettings

log = logging.getLogger("flowmesh.operator")

ROUND_S = 1.0
LOOK_S, LOOK_IDLE_S = 2.0, 10.0
"""Interval between reads of the Deployments: while sizes change, and while none does."""
LOOK_AT_ALL_S = 60.0
PODS_INTERVAL_S = 5.0
"""Interval between lists of a pool's pods while it is too large and all its workers are busy."""
PROBLEM_INTERVAL_S = 2.0
"""Interval between lists of the pods of a pool that lacks workers, to show what they wait for."""
STEADY_AFTER_S = 10.0
"""Time for workers to reconnect after a takeover; no pool shrinks before."""


class PoolController:
    """Creates and scales worker pools and writes their statuses.

    Attributes:
        figures: the pools' numbers by name; read by metrics.
    """

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        settings: OperatorSettings,
        *,
        fleet: WorkerFleet,
        reservations: PoolReservations,
        signals: CapacitySignals,
        epoch: Epoch,
        catalog: Catalog,
        steady_after_s: float = STEADY_AFTER_S,
    ) -> None:
        """Starts without any observation.

        Args:
            api: the leader's client.
            mirror: the informer cache.
            settings: have the environment of the pools' pods.
            fleet: the connected workers.
            reservations: where the reserved pools are set.
            signals: the backlog of each pool.
            epoch: the leader's epoch.
            catalog: the engines that workers may offer.
            steady_after_s: no pool shrinks for this long after the start.
        """
        self._api = api
        self._mirror = mirror
        self._fleet = fleet
        self._reservations = reservations
        self._signals = signals
        self._epoch = epoch
        self._catalog = catalog
        self._environment = settings.pod_environment
        self._reconciler = Reconciler(api, self._environment)
        self._writer = ObjectStatusWriter(api, mirror, "pools")
        self._pools: dict[str, PoolEntry] = {}
        self._refused: dict[str, int] = {}
        self._reserved: dict[str, frozenset[str]] = {}
        self._observed_s = self._observed_all_s = float("-inf")
        self._steady_after_s = steady_after_s
        self._steady_from_s = float("inf")
        self._wake = asyncio.Event()

    @property
    def figures(self) -> dict[str, PoolNumbers]:
        """The pools' numbers by name, without pools that have not been planned yet."""
        return {pool.name: pool.figures for pool in self._pools.values() if pool.planned}

    async def declare(self) -> None:
        """Declares the pools as the informer cache has them, before their workers may connect.

        Raises:
            LeadershipLostError: the fence stopped a write.
        """
        self._signals.declare(self._views)
        await self._reserve()
        try:
            await self._read()
        except ApiError as e:
            log.warning("not all pools are read, the first round tries again: %s", e)

    async def run(self) -> None:
        """Runs rounds until cancelled, after :meth:`declare`.

        Raises:
            LeadershipLostError: the fence stopped a write.
        """
        self._steady_from_s = asyncio.get_running_loop().time() + self._steady_after_s
        changes = asyncio.create_task(self._wake_on_change())
        try:
            while True:
                try:
                    await self._round()
                except ApiError as e:
                    log.warning("the round of pools ended early, the next one tries again: %s", e)
                await self._wait_for_round()
        finally:
            changes.cancel()

    async def _wake_on_change(self) -> None:
        """Starts a round at once where a pool is new, changed or deleted."""
        async for uid in self._mirror.changes("pools"):
            obj, known = self._mirror.pools.get(uid), self._pools.get(uid)
            seen = self._refused.get(uid) if known is None else known.object.metadata.generation
            if obj is None or obj["metadata"]["generation"] != seen:
                self._wake.set()

    async def _wait_for_round(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), ROUND_S)
        except TimeoutError:
            return
        self._wake.clear()

    def _views(self) -> list[PoolView]:
        return [pool.view() for _, pool in sorted(self._pools.items())]

    async def _round(self) -> None:
        await self._reserve()  # first: nothing is placed before
        await self._read()
        if not self._pools:
            await self._cordon()
            return
        await self._observe()
        await self._for_each_pool(self._apply)
        backlogs = self._signals.now()
        for pool in self._pools.values():
            self._plan(pool, backlogs.get(pool.name, Backlog()), None)
        await self._for_each_pool(self._plan_with_pods)
        await self._cordon()
        await self._prewarm()
        await self._for_each_pool(self._resize)
        await self._for_each_pool(self._look_for_problem)
        self._publish_external_targets()
        await self._for_each_pool(self._write_status)

    async def _for_each_pool(self, work: Any) -> None:
        """Calls ``work`` for every pool; an ApiError of one pool is logged and stops no other."""
        pools = list(self._pools.values())
        for pool, error in zip(
            pools, await asyncio.gather(*map(work, pools), return_exceptions=True), strict=True
        ):
            if isinstance(error, ApiError):
                log.warning("pool %s: %s", pool.name, error)
            elif error is not None:
                raise error

    async def _read(self) -> None:
        """Updates the entries from the pools' objects in the informer cache."""
        catalog, now_s = self._catalog, self._epoch.now_s()
        present = {
            uid: obj
            for uid, obj in self._mirror.pools.items()
            if obj["metadata"]["namespace"] == self._environment.namespace
            and "deletionTimestamp" not in obj["metadata"]
        }
        self._pools = {uid: pool for uid, pool in self._pools.items() if uid in present}
        self._refused = {uid: known for uid, known in self._refused.items() if uid in present}
        for uid, obj in present.items():
            known, generation = self._pools.get(uid), obj["metadata"]["generation"]
            if known is not None and known.object.metadata.generation == generation:
                continue
            if self._refused.get(uid) == generation:
                continue
            made = await self._parsed(obj)
            if made is None:
                self._refused[uid] = generation
            elif known is not None:
                known.change(made, catalog, now_s)
            else:
                pool = self._pools[uid] = PoolEntry.of(made, catalog)
                pool.decisions.extend(shown(obj).get("decisions") or [])

    async def _parsed(self, obj: Object) -> FlowMeshWorkerPool | None:
        """Returns the pool; None where it is refused, which is written to its status."""
        try:
            found = parse_object({k: v for k, v in obj.items() if k != "status"})
        except SpecError as e:
            await self._refuse(obj, str(e))
            return None
        if not isinstance(found, FlowMeshWorkerPool):
            return None
        if why := directory_refusal(found, self._environment):
            await self._refuse(obj, why)
            return None
        return found

    async def _refuse(self, obj: Object, why: str) -> None:
        update = ConditionUpdate(PoolCondition.ACCEPTED, False, PoolReason.INVALID, why)
        status = status_of(PoolNumbers(), [update], [], [], self._status_context(obj))
        await self._writer.write(obj, status)

    async def _observe(self) -> None:
        """Reads the pools' objects; more often while sizes change."""
        now = asyncio.get_running_loop().time()
        changed = any(not pool.applied_generation for pool in self._pools.values())
        modes = {pool.object.spec.autoscaling.mode for pool in self._pools.values()}
        if changed or now - self._observed_all_s >= LOOK_AT_ALL_S:
            await self._reconciler.observe()
            if "keda" in modes or self._observed_all_s < 0:
                await self._reconciler.look_for_keda()
            self._observed_all_s = now
        elif now - self._observed_s >= (LOOK_IDLE_S if self._is_settled() else LOOK_S):
            await self._reconciler.observe(
                ["Deployment", "HorizontalPodAutoscaler"] if "hpa" in modes else ["Deployment"]
            )
            if "keda" in modes:
                await self._reconciler.look_for_keda()
        else:
            return
        self._observed_s = now
        for pool in self._pools.values():
            pool.applied_generation = 0

    def _is_settled(self) -> bool:
        return all(p.figures.ready == p.figures.wanted == p.figures.replicas
                   for p in self._pools.values())  # fmt: skip

    async def _apply(self, pool: PoolEntry) -> None:
        if pool.applied_generation:
            return
        try:
            await self._reconciler.apply(pool.object)
        except ApiError as e:
            pool.problem = ConditionUpdate(
                PoolCondition.ACCEPTED, False, PoolReason.REFUSED, str(e)
            )
            raise
        pool.problem, pool.applied_generation = None, pool.object.metadata.generation

    def _plan(self, pool: PoolEntry, backlog: Backlog, pods: list[PodObservation] | None) -> None:
        """Plans one pool's size and updates its numbers."""
        workers = self._workers(pool)
        for worker in workers:
            pool.learn(worker)
        ready = sum(w.takes_work for w in workers)
        busy = sum(bool(w.attempts or w.replicas) for w in workers)
        problems = [f"{w.name}: {w.store_problem}" for w in workers if w.store_problem]
        deployment, scaler = self._reconciler.deployment(pool.name), None
        replicas = int((deployment or {}).get("spec", {}).get("replicas", 0))
        now_s = self._epoch.now_s()
        pool.watch(workers, replicas if deployment is not None else None, now_s)
        if deployment is None or pool.object.spec.autoscaling.mode == "fixed":
            pool.plan = ScalingPlan(pool.object.spec.least, external_target=pool.object.spec.least)
        else:
            before = shown(self._mirror.pools.get(pool.object.metadata.uid) or {})
            scaler = pool.scaler or pool.start_scaling(replicas, before, now_s)
            seen = PoolObservation(replicas, {w.name: worker_seen(w) for w in workers}, pods,
                        self._steady())  # fmt: skip
            pool.plan = scaler.plan(pool.view(), backlog, seen, now_s)
        start_s = scaler.start_s if scaler is not None else 0.0
        pool.figures = PoolNumbers(
            backlog.seconds,
            pool.plan.wanted,
            replicas,
            ready,
            busy,
            start_s,
            pool.figures.external_target,
            len(workers),
            pool.supply,
            len(problems),
            min(problems, default=""),
        )

    async def _plan_with_pods(self, pool: PoolEntry) -> None:
        """Lists the pool's pods and plans again, where the plan needs them."""
        if not pool.plan.needs_pods:
            return
        now = asyncio.get_running_loop().time()
        if now < pool.look_from_s:
            pool.plan = replace(pool.plan, cordon=pool.cordoned)
            return
        listed = await self._pods(pool)
        backlogs = self._signals.now()
        self._plan(pool, backlogs.get(pool.name, Backlog()), [pod_seen(p) for p in listed])
        waits = not pool.plan.marks and pool.plan.replicas is None
        pool.look_from_s = now + PODS_INTERVAL_S if waits else 0.0
        pool.cordoned = pool.plan.cordon

    async def _pods(self, pool: PoolEntry) -> list[Object]:
        selector = f"{POOL_LABEL}={pool.name}"
        return await self._api.list(*PODS, self._environment.namespace, label_selector=selector)

    async def _look_for_problem(self, pool: PoolEntry) -> None:
        """Lists the pods of a pool that lacks workers, to find why they do not start."""
        if pool.figures.connected >= pool.figures.wanted:
            pool.start_problem, pool.look_for_problem_s = None, 0.0
            return
        now = asyncio.get_running_loop().time()
        if now >= pool.look_for_problem_s:
            pool.start_problem = start_problem(await self._pods(pool))
            pool.look_for_problem_s = now + PROBLEM_INTERVAL_S

    def _steady(self) -> bool:
        clock = asyncio.get_running_loop().time()
        return clock >= self._steady_from_s and self._epoch.is_steady()

    def _workers(self, pool: PoolEntry) -> Sequence[ConnectedWorker]:
        return self._fleet.workers(pool.name)

    def _publish_external_targets(self) -> None:
        """Publishes the sizes for external autoscalers, after the cordons and marks are set."""
        for pool in self._pools.values():
            pool.figures = replace(pool.figures, external_target=pool.plan.external_target)
            pool.planned = True

    async def _reserve(self) -> None:
        """Sets which pools are reserved, and for which of the namespaces that exist."""
        namespace = self._environment.namespace
        objects = (
            o for o in self._mirror.pools.values() if o["metadata"]["namespace"] == namespace
        )
        self._reserved = reserved_pools(objects, self._mirror.namespaces, self._reserved)
        await self._reservations.reserve(self._reserved)

    async def _cordon(self) -> None:
        """Cordons the workers that the plans name, and no others."""
        names = frozenset().union(*(p.plan.cordon for p in self._pools.values()))
        await self._fleet.cordon(names)

    async def _prewarm(self) -> None:
        """Sets the engines that workers prewarm to the plan of the signals."""
        plan = self._signals.prewarm_plan()
        if self._steady():
            await self._fleet.prewarm(plan)

    async def _resize(self, pool: PoolEntry) -> None:
        """Marks the pods to be removed, then writes the pool's size."""
        plan, namespace = pool.plan, self._environment.namespace
        for name, cost in plan.marks.items():
            note = None if cost == UNMARKED else str(cost)
            body = {"metadata": {"annotations": {DELETION_COST: note}}}
            try:
                await self._api.patch(*PODS, namespace, name, body)
            except ApiError as e:
                if e.status != NOT_FOUND:
                    raise
        match pool.object.spec.autoscaling.mode:
            case "backlog" if plan.replicas is not None:
                await self._write_size(pool, plan.replicas, plan.reason)
            case "hpa" if pool.figures.replicas == 0 < plan.wanted:
                if asleep(self._reconciler.horizontal_autoscaler(pool.name)):
                    await self._write_size(
                        pool, 1, "a HorizontalPodAutoscaler does not scale up from zero"
                    )

    async def _write_size(self, pool: PoolEntry, replicas: int, reason: str) -> None:
        before, size = pool.figures.replicas, {"spec": {"replicas": replicas}}
        namespace, target = self._environment.namespace, object_name(pool.name)
        await self._api.patch(*DEPLOYMENTS, namespace, target, size, subresource="scale")
        self._reconciler.scaled(pool.name, replicas)
        now_s = self._epoch.now_s()
        pool.decisions.appendleft(decision(now_s, before, replicas, reason))
        log.info("pool %s: %d → %d workers: %s", pool.name, before, replicas, reason)

    async def _write_status(self, pool: PoolEntry) -> None:
        obj = self._mirror.pools.get(pool.object.metadata.uid)
        if obj is None:
            return
        deployment = self._reconciler.deployment(pool.name)
        updates = [
            pool.problem or ConditionUpdate(PoolCondition.ACCEPTED, True, PoolReason.APPLIED),
            readiness(pool.figures, deployment, pool.start_problem),
            scaling(
                pool.object,
                keda=self._reconciler.keda,
                hpa=self._reconciler.horizontal_autoscaler(pool.name),
                scaled=self._reconciler.scaled_object(pool.name),
            ),
            distrust(self._workers(pool)),
        ]
        components = warm(self._workers(pool))
        context = self._status_context(obj)
        await self._writer.write(
            obj, status_of(pool.figures, updates, components, list(pool.decisions), context)
        )

    def _status_context(self, obj: Object) -> StatusContext:
        generation = obj["metadata"]["generation"]
        return StatusContext(generation, self._epoch.number, self._epoch.now_s(), shown(obj))
