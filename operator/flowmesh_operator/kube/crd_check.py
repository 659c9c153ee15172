"""Checks that the custom resource definitions exist before kopf starts its watches.

kopf discovers kinds once, at its start: it would never watch a kind that is installed later.
"""

import asyncio

from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.kube.client import NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import MIRRORED, Kind


async def check_definitions(api: KubeClient) -> None:
    """Requests each watched kind once.

    Raises:
        FlowMeshError: a definition is missing.
        ApiError: the API server does not answer, or the operator lacks a right.
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
            f"the API server does not serve {plural}.{group}",
            where=e.where,
            remedy="kubectl apply --server-side -f crds/; this replica then starts by itself",
        ) from e
