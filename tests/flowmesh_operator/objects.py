"""Builders of objects as users write them."""

import json
from typing import Any

API_VERSION = "flowmesh.dev/v1alpha1"
STEP = {"name": "a", "uses": "test.noop"}


def workflow(name: str, **spec: Any) -> dict[str, Any]:
    """Returns a workflow of one step unless steps are given."""
    return {
        "apiVersion": API_VERSION,
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name},
        "spec": {"steps": [STEP], **spec},
    }


def policy(name: str, **spec: Any) -> dict[str, Any]:
    """Returns a cache policy for every namespace that shares nothing by default."""
    given = {"scope": "private", "namespaces": {"names": ["*"]}, **spec}
    return {
        "apiVersion": API_VERSION,
        "kind": "FlowMeshCachePolicy",
        "metadata": {"name": name},
        "spec": given,
    }


def text(*objects: dict[str, Any]) -> str:
    """Returns the objects as input of ``kubectl -f -``."""
    return "\n---\n".join(map(json.dumps, objects))
