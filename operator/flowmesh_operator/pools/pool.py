"""The pool controller's state of one pool: its object, its scaler and the shape of its workers."""

import json
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from msgspec import structs

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.autoscaling.pool_supply import PoolSupply
from flowmesh_core.autoscaling.settings import SCALE_DOWN_S
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.spec.pool import FlowMeshWorkerPool, WorkerPoolSpec
from flowmesh_core.spec.pool_status import DECISIONS_MAX
from flowmesh_core.spec.quantities import seconds
from flowmesh_core.units import Digest
from flowmesh_operator.kube.conditions import ConditionUpdate
from flowmesh_operator.pools.autoscaling import FIRST_START_S, PoolScaler, ScalingPlan
from flowmesh_operator.pools.start_problems import StartProblem
from flowmesh_operator.pools.status import PoolNumbers
from flowmesh_operator.pools.worker_shape import pool_declaration, pool_shape

log = logging.getLogger("flowmesh.operator")

Json = dict[str, Any]
_LEAST_START_S = 1.0
_CONTROL_FIELDS = {"min_replicas", "max_replicas", "autoscaling", "trust", "reserved_for"}
"""Fields of a pool's spec that its workers do not know."""


@dataclass(slots=True, eq=False)
class PoolEntry:
    """The state of one pool; all of it but ``object`` may be lost.

    Attributes:
        object: the validated pool.
        declaration: what the spec says of its workers.
        applied_generation: the generation whose objects were applied; 0 before.
        shape: the shape of a worker, from the spec or as a worker reported it.
        scaler: None until the pool's size is known.
        problem: why its objects could not be applied; None where they were.
        plan: the last round's plan; ``planned`` is set once there was one.
        look_from_s: its pods are not listed before this time (the loop's clock); ``cordoned`` is
            the result of the last list.
        since_s: workers that started earlier may be of an earlier spec.
        cached_components: components on the pool's cache claim; empty without a claim.
        supply: workers that it can get, where more were requested and do not come; else None.
        start_problem: why its pods do not start; None where no pod says so, or none is missing. It
            is not looked for before ``look_for_problem_s`` (the loop's clock).
    """

    object: FlowMeshWorkerPool
    shape: WorkerShape
    declaration: PoolDeclaration
    applied_generation: int = 0
    scaler: PoolScaler | None = None
    problem: ConditionUpdate | None = None
    plan: ScalingPlan = field(default_factory=lambda: ScalingPlan(0))
    planned: bool = False
    figures: PoolNumbers = field(default_factory=PoolNumbers)
    decisions: deque[Json] = field(default_factory=lambda: deque(maxlen=DECISIONS_MAX))
    look_from_s: float = 0.0
    cordoned: frozenset[str] = frozenset()
    since_s: float = 0.0
    cached_components: frozenset[Digest] = frozenset()
    supply: int | None = None
    start_problem: StartProblem | None = None
    look_for_problem_s: float = 0.0
    _supply: PoolSupply = field(default_factory=PoolSupply)

    @classmethod
    def of(cls, object_: FlowMeshWorkerPool, catalog: Catalog) -> "PoolEntry":
        """Returns the entry of a new pool."""
        return cls(object_, pool_shape(object_, catalog), pool_declaration(object_, catalog))

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.object.metadata.name

    def view(self) -> PoolView:
        """Returns the pool as the capacity signal reads it."""
        spec = self.object.spec
        target_s = seconds(spec.autoscaling.target_backlog)
        keep_s = inf if spec.autoscaling.scale_down_after is None else _scale_down_s(spec)
        return PoolView(
            self.name,
            self.shape,
            spec.least,
            spec.max_replicas,
            self._start_s,
            target_s,
            _scale_down_s(spec),
            self.cached_components,
            self.supply,
            self.declaration,
            keep_s,
        )

    @property
    def _start_s(self) -> float:
        return self.scaler.start_s if self.scaler is not None else FIRST_START_S

    def watch(self, workers: Iterable[ConnectedWorker], replicas: int | None, now_s: float) -> None:
        """Records whether requested workers connect, and updates ``supply``.

        Args:
            workers: the connected workers.
            replicas: the size of its Deployment, which an external autoscaler may not set as
                wanted; None where there is no Deployment, and so no worker will come.
            now_s: the time.
        """
        staying = sum(not worker.draining for worker in workers)
        requested = staying + 1 if replicas is None else max(replicas, self.plan.wanted)
        before, self.supply = (
            self.supply,
            self._supply.most(staying, requested, self._start_s, now_s),
        )
        if before is None and self.supply is not None:
            log.warning(
                "pool %s: %d workers requested, %d connected", self.name, requested, staying
            )

    def change(self, object_: FlowMeshWorkerPool, catalog: Catalog, now_s: float) -> None:
        """Applies a changed object."""
        before, spec = self.object.spec, object_.spec
        if spec.autoscaling != before.autoscaling:
            self.scaler = None
        if _fingerprint(self.object) != _fingerprint(object_):
            # Reports of workers of the earlier spec are no longer valid.
            self.shape, self.since_s = pool_shape(object_, catalog), now_s
            self.cached_components = frozenset()
        self.shape = structs.replace(self.shape, trust=spec.trust_level)
        self.declaration = pool_declaration(object_, catalog)
        self.object, self.applied_generation = object_, 0

    def learn(self, worker: ConnectedWorker) -> None:
        """Takes the shape that a worker reports in place of the one derived from the spec."""
        if self.object.spec.cache.claim_name is not None and worker.started_s >= self.since_s:
            self.cached_components |= {component.digest for component in worker.components}
        if worker.started_s >= self.since_s and worker.shape != self.shape:
            self.shape = structs.replace(
                worker.shape,
                name=self.name,
                zone="",
                node="",
                libraries={},
                trust=self.object.spec.trust_level,
            )

    def start_scaling(self, replicas: int, before: Json, now_s: float) -> PoolScaler:
        """Creates and returns the scaler, starting from the pool's current size."""
        autoscaling = self.object.spec.autoscaling
        learned_s = float(before.get("startSeconds") or FIRST_START_S)
        self.scaler = PoolScaler(
            target_s=seconds(autoscaling.target_backlog),
            stabilization_s=_scale_down_s(self.object.spec),
            replicas=replicas,
            now_s=now_s,
            start_s=max(_LEAST_START_S, learned_s),
            by_another=autoscaling.mode in ("hpa", "keda"),
        )
        return self.scaler


def _scale_down_s(spec: WorkerPoolSpec) -> float:
    after = spec.autoscaling.scale_down_after
    return SCALE_DOWN_S if after is None else seconds(after)


def _fingerprint(pool: FlowMeshWorkerPool) -> str:
    """Returns the part of a pool's spec that determines its workers, as text."""
    return json.dumps(pool.spec.model_dump(mode="json", exclude=_CONTROL_FIELDS), sort_keys=True)
