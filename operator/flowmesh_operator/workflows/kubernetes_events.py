"""Creates the Kubernetes Event about a workflow's end."""

import logging
from datetime import UTC, datetime
from typing import Any

from flowmesh_core.status.conditions import WorkflowCondition
from flowmesh_operator.kube.client import CONFLICT, ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import Object
from flowmesh_operator.kube.kinds import EVENTS
from flowmesh_operator.workflows.status_projection import Status

log = logging.getLogger("flowmesh.operator")

COMPONENT = "flowmesh-operator"
MOST_CHARS = 1000
"""Limit of an Event's message; the API server accepts 1,024 bytes."""


async def announce_end(api: KubeClient, obj: Object, status: Status) -> None:
    """Creates an Event that a workflow was refused, failed, or completed, with its cost."""
    conditions = {c["type"]: c for c in status["conditions"]}
    failed = conditions[WorkflowCondition.FAILED]
    if failed["status"] == "True":
        await _create(api, obj, "Warning", failed["reason"], failed["message"])
        return
    counts = status["counts"]
    note = (
        f"{counts['completed']} steps completed, {status['hits']} results reused;"
        f" cost {status['costUsd']} USD, sharing saved {status['savedUsd']} USD"
    )
    await _create(api, obj, "Normal", conditions[WorkflowCondition.COMPLETE]["reason"], note)


async def _create(api: KubeClient, obj: Object, kind: str, reason: str, note: str) -> None:
    """Creates an Event with a name derived from its content, so that a retry does not repeat it."""
    meta, now = obj["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    generation = meta.get("generation", 0)
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name'][:180]}.{meta['uid'][:13]}.{generation}.{reason.lower()}",
            "namespace": meta["namespace"],
        },
        "involvedObject": {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        },
        "type": kind,
        "reason": reason,
        "message": note[:MOST_CHARS],
        "source": {"component": COMPONENT},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await api.create(*EVENTS, meta["namespace"], body)
    except ApiError as e:
        if e.status != CONFLICT:
            log.warning(
                "the Event about %s/%s is not created: %s", meta["namespace"], meta["name"], e
            )
