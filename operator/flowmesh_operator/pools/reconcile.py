"""Reconciles the Kubernetes objects of pools: applies those that differ, and no others.

It remembers what it applied together with the API server's result, so that changes by others are
reverted and unchanged objects are not written. The memory may be lost: then everything is applied
once more, which changes nothing.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.kube.client import FIELD_MANAGER, FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    HORIZONTAL_AUTOSCALERS,
    NETWORK_POLICIES,
    SCALED_OBJECTS,
    SERVICE_ACCOUNTS,
    TRIGGER_AUTHENTICATIONS,
    Kind,
)
from flowmesh_operator.kube.labels import POOL_LABEL, object_name
from flowmesh_operator.pod_environment import PodEnvironment
from flowmesh_operator.pools.objects import wanted_objects

Json = dict[str, Any]

KINDS: dict[str, Kind] = {
    "ServiceAccount": SERVICE_ACCOUNTS,
    "NetworkPolicy": NETWORK_POLICIES,
    "PodDisruptionBudget": DISRUPTION_BUDGETS,
    "Deployment": DEPLOYMENTS,
    "HorizontalPodAutoscaler": HORIZONTAL_AUTOSCALERS,
}
KEDA_KINDS: dict[str, Kind] = {
    "TriggerAuthentication": TRIGGER_AUTHENTICATIONS,
    "ScaledObject": SCALED_OBJECTS,
}
_ALL = KINDS | KEDA_KINDS
_AUTOSCALERS = ("HorizontalPodAutoscaler", *reversed(KEDA_KINDS))
"""Kinds that a pool may stop using; the garbage collector deletes the others with the pool."""
_REPLICAS = ("f:spec", "f:replicas")
_VOLATILE = ("deployment.kubernetes.io/revision",)
_NOT_COMPARED = frozenset({"apiVersion", "kind", "metadata", "spec", "status", "secrets"})


class Reconciler:
    """Reads the objects of pools and applies the differences."""

    def __init__(self, api: KubeClient, around: PodEnvironment) -> None:
        self._api = api
        self._environment = around
        self._live: dict[str, dict[str, dict[str, Json]]] = {}
        self._applied: dict[tuple[str, str], tuple[str, str]] = {}
        self.keda = False

    async def observe(self, kinds: Iterable[str] = tuple(KINDS)) -> None:
        """Lists the pools' objects of some kinds.

        Raises:
            ApiError: the objects cannot be listed.
        """
        for name in kinds:
            self._live[name] = await self._list(KINDS[name])

    async def look_for_keda(self) -> None:
        """Lists the pools' KEDA objects; sets ``keda`` to whether KEDA is enabled and installed."""
        self.keda = False
        if not self._environment.metrics_url:
            return
        try:
            for name, kind in KEDA_KINDS.items():
                self._live[name] = await self._list(kind)
        except ApiError as e:
            if e.status not in (NOT_FOUND, FORBIDDEN):
                raise
            for name in KEDA_KINDS:
                self._live.pop(name, None)
            return
        self.keda = True

    def deployment(self, pool: str) -> Json | None:
        """Returns the pool's Deployment as last observed."""
        return next(iter(self._live.get("Deployment", {}).get(pool, {}).values()), None)

    def horizontal_autoscaler(self, pool: str) -> Json | None:
        """Returns the pool's HorizontalPodAutoscaler as last observed."""
        return self._live.get("HorizontalPodAutoscaler", {}).get(pool, {}).get(object_name(pool))

    def scaled_object(self, pool: str) -> Json | None:
        """Returns the pool's ScaledObject as last observed."""
        return self._live.get("ScaledObject", {}).get(pool, {}).get(object_name(pool))

    def scaled(self, pool: str, replicas: int) -> None:
        """Records that the operator wrote the pool's size."""
        live = self.deployment(pool)
        if live is not None:
            live["spec"]["replicas"] = replicas
            owners = live["metadata"].setdefault("managedFields", [])
            owners.append({"manager": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}})

    async def apply(self, pool: FlowMeshWorkerPool) -> None:
        """Applies the objects that differ, and deletes autoscalers that the pool no longer uses.

        Raises:
            ApiError: the API server refused an object; the message is its own.
        """
        name = pool.metadata.name
        size = int((self.deployment(name) or {}).get("spec", {}).get("replicas", 0))
        wanted = wanted_objects(pool, self._environment, keda=self.keda, size=size)
        for body in wanted:
            await self._apply(name, body, pool)
        kinds = {body["kind"] for body in wanted}
        for kind in (kind for kind in _AUTOSCALERS if kind not in kinds):
            for live in list(self._live.get(kind, {}).get(name, {}).values()):
                if _is_owned_by(live, pool):
                    await self._delete(kind, name, live)

    async def _list(self, kind: Kind) -> dict[str, dict[str, Json]]:
        found: dict[str, dict[str, Json]] = defaultdict(dict)
        namespace = self._environment.namespace
        for item in await self._api.list(*kind, namespace, label_selector=POOL_LABEL):
            meta = item["metadata"]
            if "deletionTimestamp" not in meta:
                found[meta["labels"][POOL_LABEL]][meta["name"]] = item
        return found

    async def _apply(self, pool: str, body: Json, owner: FlowMeshWorkerPool) -> None:
        kind, name = body["kind"], body["metadata"]["name"]
        live = self._live.get(kind, {}).get(pool, {}).get(name)
        known = self._applied.get((kind, name))
        wanted_fingerprint = _fingerprint(body)
        if (
            known is not None
            and live is not None
            and known == (wanted_fingerprint, _live_fingerprint(live))
        ):
            return
        if kind == "Deployment" and owner.spec.autoscaling.mode != "fixed":
            body = _with_size(body, live, owner.spec.min_replicas)
        group, version, plural = _ALL[kind]
        made = await self._api.apply(group, version, plural, self._environment.namespace, body)
        self._live.setdefault(kind, {}).setdefault(pool, {})[name] = made
        self._applied[kind, name] = (wanted_fingerprint, _live_fingerprint(made))

    async def _delete(self, kind: str, pool: str, live: Json) -> None:
        meta = live["metadata"]
        group, version, plural = _ALL[kind]
        try:
            await self._api.delete(
                group, version, plural, self._environment.namespace, meta["name"], uid=meta["uid"]
            )
        except ApiError as e:
            if e.status != NOT_FOUND:
                raise
        self._live[kind][pool].pop(meta["name"], None)


def _with_size(body: Json, live: Json | None, least: int) -> Json:
    """Returns the Deployment with its size where no other field manager owns it, else without.

    Server-side apply resets a field that is applied once and then omitted to its default, one,
    unless another manager wrote it since: the operator's ``scale`` writes, or an autoscaler.
    """
    if live is None:
        return {**body, "spec": {**body["spec"], "replicas": least}}
    owners = {
        (entry.get("manager"), entry.get("operation"))
        for entry in live["metadata"].get("managedFields", [])
        if _has_field(entry.get("fieldsV1") or {}, _REPLICAS)
    }
    if owners - {(FIELD_MANAGER, "Apply")}:
        return body
    return {**body, "spec": {**body["spec"], "replicas": live["spec"].get("replicas", least)}}


def _has_field(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    for key in path:
        if key not in fields:
            return False
        fields = fields[key]
    return True


def _is_owned_by(live: Json, pool: FlowMeshWorkerPool) -> bool:
    owners = live["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == pool.metadata.uid for owner in owners)


def _live_fingerprint(live: Json) -> str:
    """Returns a hash of the fields that the operator sets: no status, size or bookkeeping."""
    meta = live["metadata"]
    notes = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in _VOLATILE}
    rest = {k: v for k, v in live.items() if k not in _NOT_COMPARED}
    spec = {k: v for k, v in (live.get("spec") or {}).items() if k != "replicas"}
    compared = {"labels": meta.get("labels"), "owners": meta.get("ownerReferences"), "notes": notes}
    return _fingerprint({**rest, "metadata": compared, "spec": spec})


def _fingerprint(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
