"""Sees that the custom resources are there before anything watches them.

kopf looks once, at its start, which kinds there are; a kind that comes later it would never watch.
"""

import asyncio

from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.kube.client import NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import MIRRORED, Kind


async def check_definitions(api: KubeClient) -> None:
    """Asks for every kind.

    Raises:
        FlowMeshError: a definition is missing; with the remedy.
        ApiError: the API server does not answer, or a right is missing.
    """
    await asyncio.gather(*(_check(api, kind) for kind in MIRRORED.values()))


async def _check(api: KubeClient, kind: Kind) -> None:
    group, version, plural = kind
    try:
        await api.probe(group, version, plural)
    except ApiError as e:
        if e.status != NOT_FOUND:
            raise
        raise FlowMeshError(
            f"the API server does not know {plural}.{group}",
            where=e.where,
            remedy="kubectl apply --server-side -f crds/; this replica then starts by itself",
        ) from e
