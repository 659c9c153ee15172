"""What a new leader reads before it does anything: the objects that decide about others."""

import asyncio

from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.kube.kinds import MIRRORED

_WHOLE = ("namespaces", "policies", "pools")


async def settle(api: KubeClient, mirror: InformerCache) -> None:
    """Makes the mirror whole but for workflows, which are many and can wait (``DeletionDetector``).

    Raises:
        ApiError: they cannot be listed.
    """
    await asyncio.gather(*(_list(api, mirror, kind) for kind in _WHOLE))


async def _list(api: KubeClient, mirror: InformerCache, kind: str) -> None:
    before = mirror.begin(kind)
    group, version, plural = MIRRORED[kind]
    found = await api.list(group, version, plural)
    mirror.listed(kind, before, found)
    for obj in found:
        mirror.seen(kind, "ADDED", obj)
