"""Converts pods and connected workers to the observations that the scaler reads."""

from datetime import datetime
from typing import Any

from flowmesh_control.autoscaling.worker_fleet import ConnectedWorker
from flowmesh_operator.kube.labels import DELETION_COST
from flowmesh_operator.pools.autoscaling import UNMARKED, PodObservation, WorkerObservation

ENDED = frozenset({"Failed", "Succeeded"})


def worker_seen(worker: ConnectedWorker) -> WorkerObservation:
    """Returns the observation of a connected worker."""
    warm_bytes = sum(c.size_bytes for c in worker.components if c.tier != "disk")
    assigned = worker.attempts + worker.replicas
    return WorkerObservation(assigned, warm_bytes, serves=worker.replicas > 0)


def pod_seen(obj: dict[str, Any]) -> PodObservation:
    """Returns the observation of a pod; a deletion cost that is not a number is ignored."""
    meta = obj["metadata"]
    status = obj.get("status") or {}
    conditions = status.get("conditions") or []
    cost = str((meta.get("annotations") or {}).get(DELETION_COST, UNMARKED))
    return PodObservation(
        name=meta["name"],
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
        # An evicted pod remains as an object after the ReplicaSet has replaced it.
        leaving="deletionTimestamp" in meta or status.get("phase") in ENDED,
        cost=int(cost) if cost.lstrip("-").isdigit() else UNMARKED,
        created_s=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
    )
