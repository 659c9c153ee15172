"""Lists policies, quotas, pools, services and namespaces before a leader reconciles workflows."""

import asyncio

from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.kube.kinds import MIRRORED

_WHOLE = ("namespaces", "policies", "pools", "quotas", "services")


async def sync_cache(api: KubeClient, mirror: InformerCache) -> None:
    """Completes the informer cache, except for workflows, which are many (``DeletionDetector``).

    Raises:
        ApiError: the objects cannot be listed.
    """
    await asyncio.gather(*(_list(api, mirror, kind) for kind in _WHOLE))


async def _list(api: KubeClient, mirror: InformerCache, kind: str) -> None:
    before = mirror.begin(kind)
    group, version, plural = MIRRORED[kind]
    found = await api.list(group, version, plural)
    mirror.listed(kind, before, found)
    for obj in found:
        mirror.update(kind, "ADDED", obj)
