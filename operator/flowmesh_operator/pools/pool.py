"""One pool as the controller knows it: its object, read; its scaler; the shape of its workers."""

import json
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_supply import PoolSupply
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.pool_status import DECISIONS_KEPT
from flowmesh_core.spec.quantities import seconds
from flowmesh_core.units import Digest
from flowmesh_operator.pools.autoscaling import FIRST_START_S, PoolScaler, ScalingPlan
from flowmesh_operator.pools.status import PoolConditionUpdate, PoolNumbers
from flowmesh_operator.pools.worker_shape import pool_shape

log = logging.getLogger("flowmesh.operator")

Json = dict[str, Any]
_LEAST_START_S = 1.0
_SCALING_FIELDS = {"min_replicas", "max_replicas", "autoscaling"}


@dataclass(slots=True, eq=False)
class PoolEntry:
    """What is known of a pool; all but ``object`` may be lost.

    Attributes:
        object: the validated pool.
        brought: the generation whose objects stand there as wanted; 0 before.
        shape: a worker's, as the spec or a worker says it.
        scaler: None until the pool's size is known.
        problem: why its objects could not be applied; None where they are.
        plan: of the last round; ``planned`` once there was one.
        look_from_s: its pods are not looked at before (on the loop's clock); ``cordoned`` is what
            they gave the last time.
        since_s: workers that started before may be of an earlier spec.
        kept: components that its workers left on the claim that caches them; empty without one.
        supply: workers that it can have, where more were asked for and do not come; else None.
    """

    object: FlowMeshWorkerPool
    shape: WorkerShape
    brought: int = 0
    scaler: PoolScaler | None = None
    problem: PoolConditionUpdate | None = None
    plan: ScalingPlan = field(default_factory=lambda: ScalingPlan(0))
    planned: bool = False
    figures: PoolNumbers = field(default_factory=PoolNumbers)
    decisions: deque[Json] = field(default_factory=lambda: deque(maxlen=DECISIONS_KEPT))
    look_from_s: float = 0.0
    cordoned: frozenset[str] = frozenset()
    since_s: float = 0.0
    kept: frozenset[Digest] = frozenset()
    supply: int | None = None
    _supply: PoolSupply = field(default_factory=PoolSupply)

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.object.metadata.name

    def view(self) -> PoolView:
        """The pool as the signal sees it."""
        spec = self.object.spec
        target_s = seconds(spec.autoscaling.target_backlog)
        calm_s = seconds(spec.autoscaling.scale_down_after)
        return PoolView(
            self.name,
            self.shape,
            spec.least,
            spec.max_replicas,
            self._start_s,
            target_s,
            calm_s,
            self.kept,
            self.supply,
        )

    @property
    def _start_s(self) -> float:
        return self.scaler.start_s if self.scaler is not None else FIRST_START_S

    def watch(self, workers: Iterable[ConnectedWorker], replicas: int | None, now_s: float) -> None:
        """Notes whether the workers come that there should be.

        Args:
            workers: the connected ones.
            replicas: of its Deployment, which others may not bring to what is wanted; None where
                there is no Deployment, and so nobody will come.
            now_s: the time.
        """
        staying = sum(not worker.draining for worker in workers)
        asked = staying + 1 if replicas is None else max(replicas, self.plan.wanted)
        before, self.supply = self.supply, self._supply.most(staying, asked, self._start_s, now_s)
        if before is None and self.supply is not None:
            log.warning("pool %s: of %d workers %d have come", self.name, asked, staying)

    def change(self, object_: FlowMeshWorkerPool, catalog: Catalog, now_s: float) -> None:
        """The pool's object has changed."""
        before, spec = self.object.spec, object_.spec
        if spec.autoscaling != before.autoscaling:
            self.scaler = None
        if _print(self.object) != _print(object_):
            # What workers of the earlier spec say of themselves counts no longer.
            self.shape, self.since_s = pool_shape(object_, catalog), now_s
            self.kept = frozenset()
        self.object, self.brought = object_, 0

    def learn(self, worker: ConnectedWorker) -> None:
        """What a worker says of itself holds, rather than what one would expect of it."""
        if self.object.spec.cache.claim_name is not None and worker.started_s >= self.since_s:
            self.kept |= {component.digest for component in worker.components}
        if worker.started_s >= self.since_s and worker.shape != self.shape:
            self.shape = structs.replace(
                worker.shape, name=self.name, zone="", node="", libraries={}
            )

    def start_scaling(self, replicas: int, before: Json, now_s: float) -> PoolScaler:
        """The scaler, from the pool's size as it is now."""
        asked = self.object.spec.autoscaling
        learned_s = float(before.get("startSeconds") or FIRST_START_S)
        self.scaler = PoolScaler(
            target_s=seconds(asked.target_backlog),
            calm_s=seconds(asked.scale_down_after),
            replicas=replicas,
            now_s=now_s,
            start_s=max(_LEAST_START_S, learned_s),
            by_another=asked.mode in ("hpa", "keda"),
        )
        return self.scaler


def _print(pool: FlowMeshWorkerPool) -> str:
    """What of a pool decides what its workers are."""
    return json.dumps(pool.spec.model_dump(mode="json", exclude=_SCALING_FIELDS), sort_keys=True)
