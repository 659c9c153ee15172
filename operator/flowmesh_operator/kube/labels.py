"""Names and labels of what pools are made of; people and selectors hold on to them."""

from typing import Any

from flowmesh_core.spec.pool import FlowMeshWorkerPool

POOL_LABEL = "flowmesh.dev/pool"
CAPACITY_LABEL = "flowmesh.dev/capacity"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
TOKEN_AUDIENCE = "flowmesh"
_PREFIX = "flowmesh-pool-"


def object_name(pool: str) -> str:
    """The name of a pool's Deployment, ServiceAccount, PodDisruptionBudget and NetworkPolicy."""
    return f"{_PREFIX}{pool}"


def pool_of_object(name: str) -> str | None:
    """The pool of an object by its name, or None where it is no pool's."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) and name != _PREFIX else None


def selector_labels(pool: str) -> dict[str, str]:
    """What selects the pods of a pool; it never changes."""
    return {
        "app.kubernetes.io/name": "flowmesh",
        "app.kubernetes.io/component": "worker",
        POOL_LABEL: pool,
    }


def object_metadata(pool: FlowMeshWorkerPool, name: str = "") -> dict[str, Any]:
    """Metadata of an object that is a pool's: named for it, and gone when it is."""
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
