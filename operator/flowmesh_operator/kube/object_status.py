"""Writes the statuses of objects of one kind where they changed, never over a later version."""

from typing import Any

from flowmesh_operator.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.conditions import StatusContext
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import MIRRORED

Json = dict[str, Any]


def shown(obj: Object) -> Json:
    """Returns an object's current status; empty where it has none."""
    found: Json = obj.get("status") or {}
    return found


def context_of(obj: Object, epoch: int, now_s: float) -> StatusContext:
    """Returns what a status of an object is written for.

    Args:
        obj: as the informer cache has it.
        epoch: the leader's.
        now_s: seconds since 1970.
    """
    return StatusContext(obj["metadata"].get("generation", 0), epoch, now_s, shown(obj))


class ObjectStatusWriter:
    """Patches statuses and updates the informer cache with the result."""

    def __init__(self, api: KubeClient, mirror: InformerCache, kind: str) -> None:
        """Writes nothing yet.

        Args:
            api: the leader's client.
            mirror: the informer cache.
            kind: its name of the objects' kind.
        """
        self._api = api
        self._mirror = mirror
        self._kind = kind

    async def write(self, obj: Object, status: Json) -> bool:
        """Writes the changed fields of a status; returns whether there were any.

        Raises:
            ApiError: the API server refused; after a conflict the next round tries again.
        """
        changed = {k: v for k, v in status.items() if shown(obj).get(k) != v}
        if not changed:
            return False
        meta, where = obj["metadata"], MIRRORED[self._kind]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]},
            "status": changed,
        }
        try:
            answer = await self._api.patch_status(
                *where, meta.get("namespace", ""), meta["name"], body
            )
        except ApiError as e:
            if e.status in (CONFLICT, NOT_FOUND):
                return False
            raise
        self._mirror.update(self._kind, "MODIFIED", answer)
        return True
