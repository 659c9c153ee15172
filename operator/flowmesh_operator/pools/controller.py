"""Brings pools to what they say, and their sizes to what their work asks for.

Level-triggered and by rounds: what is seen (objects, workers, backlog) gives what is to be done.
The leader runs it in the event loop of its control plane, so that nothing changes within a step.
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
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import DEPLOYMENTS, PODS
from flowmesh_operator.kube.labels import DELETION_COST, POOL_LABEL, object_name
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
from flowmesh_operator.pools.status import (
    PoolConditionUpdate,
    PoolNumbers,
    PoolStatusContext,
    asleep,
    decision,
    readiness,
    scaling,
    status_of,
    warm,
)
from flowmesh_operator.pools.status_writer import PoolStatusWriter, shown
from flowmesh_operator.pools.worker_shape import pool_shape
from flowmesh_operator.ports import CapacitySignals, Epoch, WorkerFleet
from flowmesh_operator.settings import OperatorSettings

log = logging.getLogger("flowmesh.operator")

ROUND_S = 1.0
LOOK_S, LOOK_IDLE_S = 2.0, 10.0
"""Between two looks at the Deployments: while sizes change, and while nothing does."""
LOOK_AT_ALL_S = 60.0
LOOK_AGAIN_S = 5.0
"""The same at pods of a pool that is too large, while all that could go are busy."""
STEADY_AFTER_S = 10.0
"""After a takeover workers may take so long to come back; nothing shrinks before."""


class PoolController:
    """Makes, scales and shows worker pools.

    Attributes:
        figures: the pools in numbers, by name; read by metrics.
    """

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        settings: OperatorSettings,
        *,
        fleet: WorkerFleet,
        signals: CapacitySignals,
        epoch: Epoch,
        catalog: Catalog,
        steady_after_s: float = STEADY_AFTER_S,
    ) -> None:
        """Brings pools to what the mirror's objects say, and their sizes to the signals.

        Args:
            api: of the leader.
            mirror: the objects as they stand.
            settings: say where the pools' pods run.
            fleet: the connected workers.
            signals: the work that each pool has before it.
            epoch: the leader's.
            catalog: what workers may offer.
            steady_after_s: nothing shrinks for so long after the start.
        """
        self._api = api
        self._mirror = mirror
        self._fleet = fleet
        self._signals = signals
        self._epoch = epoch
        self._catalog = catalog
        self._around = settings.surroundings
        self._reconciler = Reconciler(api, self._around)
        self._writer = PoolStatusWriter(api, mirror)
        self._pools: dict[str, PoolEntry] = {}
        self._refused: dict[str, int] = {}
        self._looked_s = self._looked_at_all_s = float("-inf")
        self._steady_after_s = steady_after_s
        self._steady_from_s = float("inf")
        self._wake = asyncio.Event()

    @property
    def figures(self) -> dict[str, PoolNumbers]:
        """The pools in numbers, by name; of one that was not looked at yet nothing is known."""
        return {pool.name: pool.figures for pool in self._pools.values() if pool.planned}

    async def run(self) -> None:
        """Goes round until cancelled.

        Raises:
            LeadershipLostError: a write was stopped.
        """
        self._signals.declare(self._views)
        self._steady_from_s = asyncio.get_running_loop().time() + self._steady_after_s
        changes = asyncio.create_task(self._follow())
        try:
            while True:
                try:
                    await self._round()
                except ApiError as e:
                    log.warning("pools are looked at again: %s", e)
                await self._rest()
        finally:
            changes.cancel()

    async def _follow(self) -> None:
        """Does not wait for the next round where a pool is new, changed or gone."""
        async for uid in self._mirror.changes("pools"):
            obj, known = self._mirror.pools.get(uid), self._pools.get(uid)
            seen = self._refused.get(uid) if known is None else known.object.metadata.generation
            if obj is None or obj["metadata"]["generation"] != seen:
                self._wake.set()

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), ROUND_S)
        except TimeoutError:
            return
        self._wake.clear()

    def _views(self) -> list[PoolView]:
        return [pool.view() for _, pool in sorted(self._pools.items())]

    async def _round(self) -> None:
        await self._read()
        if not self._pools:
            await self._cordon()
            return
        await self._look()
        await self._each(self._bring)
        backlogs = self._signals.now()
        for pool in self._pools.values():
            self._plan(pool, backlogs.get(pool.name, Backlog()), None)
        await self._each(self._plan_with_pods)
        await self._cordon()
        await self._hold_open()
        await self._each(self._size)
        self._tell()
        await self._each(self._show)

    async def _each(self, work: Any) -> None:
        """Does something for every pool; what the API server refuses of one is not the others'."""
        pools = list(self._pools.values())
        for pool, error in zip(
            pools, await asyncio.gather(*map(work, pools), return_exceptions=True), strict=True
        ):
            if isinstance(error, ApiError):
                log.warning("pool %s: %s", pool.name, error)
            elif error is not None:
                raise error

    async def _read(self) -> None:
        """Takes in the pools' objects as the mirror has them."""
        catalog, now_s = self._catalog, self._epoch.now_s()
        there = {
            uid: obj
            for uid, obj in self._mirror.pools.items()
            if obj["metadata"]["namespace"] == self._around.namespace
            and "deletionTimestamp" not in obj["metadata"]
        }
        self._pools = {uid: pool for uid, pool in self._pools.items() if uid in there}
        self._refused = {uid: known for uid, known in self._refused.items() if uid in there}
        for uid, obj in there.items():
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
                pool = self._pools[uid] = PoolEntry(made, pool_shape(made, catalog))
                pool.decisions.extend(shown(obj).get("decisions") or [])

    async def _parsed(self, obj: Object) -> FlowMeshWorkerPool | None:
        """The pool; None where it says what cannot be, which its status then says."""
        try:
            found = parse_object({k: v for k, v in obj.items() if k != "status"})
        except SpecError as e:
            await self._refuse(obj, str(e))
            return None
        return found if isinstance(found, FlowMeshWorkerPool) else None

    async def _refuse(self, obj: Object, why: str) -> None:
        said = PoolConditionUpdate(PoolCondition.ACCEPTED, False, PoolReason.INVALID, why)
        status = status_of(PoolNumbers(), [said], [], [], self._about(obj))
        await self._writer.write(obj, status)

    async def _look(self) -> None:
        """Reads the pools' objects, more often while sizes change."""
        now = asyncio.get_running_loop().time()
        changed = any(not pool.brought for pool in self._pools.values())
        modes = {pool.object.spec.autoscaling.mode for pool in self._pools.values()}
        if changed or now - self._looked_at_all_s >= LOOK_AT_ALL_S:
            await self._reconciler.look()
            if "keda" in modes or self._looked_at_all_s < 0:
                await self._reconciler.look_for_keda()
            self._looked_at_all_s = now
        elif now - self._looked_s >= (LOOK_IDLE_S if self._calm() else LOOK_S):
            await self._reconciler.look(
                ["Deployment", "HorizontalPodAutoscaler"] if "hpa" in modes else ["Deployment"]
            )
            if "keda" in modes:
                await self._reconciler.look_for_keda()
        else:
            return
        self._looked_s = now
        for pool in self._pools.values():
            pool.brought = 0

    def _calm(self) -> bool:
        return all(p.figures.ready == p.figures.wanted == p.figures.replicas
                   for p in self._pools.values())  # fmt: skip

    async def _bring(self, pool: PoolEntry) -> None:
        if pool.brought:
            return
        try:
            await self._reconciler.bring(pool.object)
        except ApiError as e:
            pool.problem = PoolConditionUpdate(
                PoolCondition.ACCEPTED, False, PoolReason.REFUSED, str(e)
            )
            raise
        pool.problem, pool.brought = None, pool.object.metadata.generation

    def _plan(self, pool: PoolEntry, backlog: Backlog, pods: list[PodObservation] | None) -> None:
        """Plans one pool's size, and takes down its figures."""
        workers = self._workers(pool)
        for worker in workers:
            pool.learn(worker)
        ready = sum(w.takes_work for w in workers)
        busy = sum(bool(w.attempts) for w in workers)
        deployment, scaler = self._reconciler.deployment(pool.name), None
        replicas = int((deployment or {}).get("spec", {}).get("replicas", 0))
        now_s = self._epoch.now_s()
        pool.watch(workers, replicas if deployment is not None else None, now_s)
        if deployment is None or pool.object.spec.autoscaling.mode == "fixed":
            pool.plan = ScalingPlan(pool.object.spec.least, told=pool.object.spec.least)
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
            pool.figures.told,
            len(workers),
            pool.supply,
        )

    async def _plan_with_pods(self, pool: PoolEntry) -> None:
        """Plans again with the pool's pods where that is what is missing."""
        if not pool.plan.look:
            return
        now = asyncio.get_running_loop().time()
        if now < pool.look_from_s:
            pool.plan = replace(pool.plan, cordon=pool.cordoned)
            return
        selector = f"{POOL_LABEL}={pool.name}"
        listed = await self._api.list(*PODS, self._around.namespace, label_selector=selector)
        backlogs = self._signals.now()
        self._plan(pool, backlogs.get(pool.name, Backlog()), [pod_seen(p) for p in listed])
        waits = not pool.plan.marks and pool.plan.replicas is None
        pool.look_from_s = now + LOOK_AGAIN_S if waits else 0.0
        pool.cordoned = pool.plan.cordon

    def _steady(self) -> bool:
        clock = asyncio.get_running_loop().time()
        return clock >= self._steady_from_s and self._epoch.is_steady()

    def _workers(self, pool: PoolEntry) -> Sequence[ConnectedWorker]:
        return self._fleet.workers(pool.name)

    def _tell(self) -> None:
        """Lets others' autoscalers have the figure, now that who may go is cordoned and marked."""
        for pool in self._pools.values():
            pool.figures = replace(pool.figures, told=pool.plan.told)
            pool.planned = True

    async def _cordon(self) -> None:
        """Brings the workers that take nothing new to those that the plans name."""
        names = frozenset().union(*(p.plan.cordon for p in self._pools.values()))
        await self._fleet.cordon(names)

    async def _hold_open(self) -> None:
        """Brings the engines that workers hold open ahead of work to what the signals say."""
        plan = self._signals.prewarm_plan()
        if self._steady():
            await self._fleet.prewarm(plan)

    async def _size(self, pool: PoolEntry) -> None:
        """Marks the pods that are to go, then writes the pool's size."""
        plan, namespace = pool.plan, self._around.namespace
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
                    await self._write_size(pool, 1, "the autoscaler leaves alone what is at zero")

    async def _write_size(self, pool: PoolEntry, replicas: int, reason: str) -> None:
        before, size = pool.figures.replicas, {"spec": {"replicas": replicas}}
        namespace, target = self._around.namespace, object_name(pool.name)
        await self._api.patch(*DEPLOYMENTS, namespace, target, size, subresource="scale")
        self._reconciler.scaled(pool.name, replicas)
        now_s = self._epoch.now_s()
        pool.decisions.appendleft(decision(now_s, before, replicas, reason))
        log.info("pool %s: %d → %d workers: %s", pool.name, before, replicas, reason)

    async def _show(self, pool: PoolEntry) -> None:
        obj = self._mirror.pools.get(pool.object.metadata.uid)
        if obj is None:
            return
        deployment = self._reconciler.deployment(pool.name)
        said = [
            pool.problem or PoolConditionUpdate(PoolCondition.ACCEPTED, True, PoolReason.APPLIED),
            readiness(pool.figures, deployment),
            scaling(
                pool.object,
                keda=self._reconciler.keda,
                hpa=self._reconciler.horizontal_autoscaler(pool.name),
                scaled=self._reconciler.scaled_object(pool.name),
            ),
        ]
        components = warm(self._workers(pool))
        about = self._about(obj)
        await self._writer.write(
            obj, status_of(pool.figures, said, components, list(pool.decisions), about)
        )

    def _about(self, obj: Object) -> PoolStatusContext:
        generation = obj["metadata"]["generation"]
        return PoolStatusContext(generation, self._epoch.number, self._epoch.now_s(), shown(obj))
