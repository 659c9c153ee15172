"""Names and labels of a pool's objects; selectors and users' scripts depend on them."""

from typing import Any

from flowmesh_core.spec.pool import FlowMeshWorkerPool

POOL_LABEL = "flowmesh.dev/pool"
CAPACITY_LABEL = "flowmesh.dev/capacity"
PEERS_LABEL = {"flowmesh.dev/peers": "true"}
"""Of pods whose hubs send each other values of services' stages."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TOKEN_AUDIENCE = "flowmesh"
_PREFIX = "flowmesh-pool-"


def object_name(pool: str) -> str:
    """Returns the name of a pool's Deployment, ServiceAccount, budget and NetworkPolicy."""
    return f"{_PREFIX}{pool}"


def pool_of_object(name: str) -> str | None:
    """Returns the pool that an object belongs to by its name, or None."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) and name != _PREFIX else None


def selector_labels(pool: str) -> dict[str, str]:
    """Returns the labels that select a pool's pods; a Deployment's selector is immutable."""
    return {
        "app.kubernetes.io/name": "flowmesh",
        "app.kubernetes.io/component": "worker",
        POOL_LABEL: pool,
    }


def object_metadata(pool: FlowMeshWorkerPool, name: str = "") -> dict[str, Any]:
    """Returns metadata of an object that the pool owns, so that it is deleted with the pool."""
    return {
        "name": name or object_name(pool.metadata.name),
        "namespace": pool.metadata.namespace,
        "labels": {
            **selector_labels(pool.metadata.name),
            "app.kubernetes.io/managed-by": "flowmesh-operator",
        },
        "ownerReferences": [
            {
                "apiVersion": pool.api_version,
                "kind": pool.kind,
                "name": pool.metadata.name,
                "uid": pool.metadata.uid,
                "controller": True,
            }
        ],
    }
