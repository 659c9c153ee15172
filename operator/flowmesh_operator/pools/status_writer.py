"""Writes the statuses of pools: none where nothing changed, never over a later version."""

from typing import Any

from flowmesh_operator.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import POOLS

Json = dict[str, Any]


def shown(obj: Object) -> Json:
    """The status that stands in an object."""
    found: Json = obj.get("status") or {}
    return found


class PoolStatusWriter:
    """Writes over what the mirror shows, and shows there what was written."""

    def __init__(self, api: KubeClient, mirror: InformerCache) -> None:
        """Takes where to write, and where a written object is shown at once."""
        self._api = api
        self._mirror = mirror

    async def write(self, obj: Object, status: Json) -> bool:
        """Writes a status where it says something new; whether it did.

        Raises:
            ApiError: the API server refused; a conflict is looked at again in the next round.
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
        self._mirror.seen("pools", "MODIFIED", answer)
        return True
