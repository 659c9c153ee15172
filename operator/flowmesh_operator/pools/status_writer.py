"""Writes the statuses of pools where they changed, never over a later version."""

from typing import Any

from flowmesh_operator.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import POOLS

Json = dict[str, Any]


def shown(obj: Object) -> Json:
    """Returns an object's current status; empty where it has none."""
    found: Json = obj.get("status") or {}
    return found


class PoolStatusWriter:
    """Patches statuses and updates the informer cache with the result."""

    def __init__(self, api: KubeClient, mirror: InformerCache) -> None:
        self._api = api
        self._mirror = mirror

    async def write(self, obj: Object, status: Json) -> bool:
        """Writes the changed fields of a status; returns whether there were any.

        Raises:
            ApiError: the API server refused; after a conflict the next round tries again.
        """
        changed = {k: v for k, v in status.items() if shown(obj).get(k) != v}
        if not changed:
            return False
        meta = obj["metadata"]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]},
            "status": changed,
        }
        try:
            answer = await self._api.patch_status(*POOLS, meta["namespace"], meta["name"], body)
        except ApiError as e:
            if e.status in (CONFLICT, NOT_FOUND):
                return False
            raise
        self._mirror.update("pools", "MODIFIED", answer)
        return True
