"""Pools that a scenario creates."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from e2e.cluster.project_images import THIN
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import condition, until


def code_pool_spec(fabric: Fabric, **changes: Any) -> dict[str, Any]:
    """Returns a pool of thin workers that run users' code, with the installed thin pool's image."""
    found = fabric.kube.get("fmwp", "thin", f"--namespace={NAMESPACE}")
    return {
        "image": found["spec"]["image"] if found else THIN.name,
        "imagePullPolicy": "IfNotPresent",
        "engines": {"flavor": "thin"},
        "minReplicas": 1,
        "maxReplicas": 1,
        "resources": {"cpu": 0.25, "memory": "2Gi"},
        "userCode": True,
        "cache": {"sizeLimit": "1Gi"},
        "drainGrace": "10s",
        "autoscaling": {"targetBacklog": "10s"},
        **changes,
    }


@contextmanager
def pool(fabric: Fabric, name: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """Creates a pool for a block and waits for its workers' end afterwards."""
    where = f"--namespace={NAMESPACE}"
    fabric.kube.apply(
        {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkerPool",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": dict(spec),
        }
    )
    try:
        until(
            lambda: (
                condition(fabric.kube.get("fmwp", name, where), "Accepted").get("status") == "True"
            ),
            f"pool {name} is accepted",
        )
        yield name
    finally:
        fabric.kube.run("delete", "fmwp", name, where, "--ignore-not-found")
        until(lambda: not fabric.workers(name), f"pool {name} has no worker left", 120)
