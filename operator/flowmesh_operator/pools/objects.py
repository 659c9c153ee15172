"""What a pool is made of on the cluster. Pure: the same pool gives the same objects.

Applied by :mod:`flowmesh_operator.pools.reconcile`; held by snapshots and against a real API server
by tests.
"""

from typing import Any

from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.quantities import seconds
from flowmesh_operator.pools.names import object_metadata, object_name, selector_labels
from flowmesh_operator.pools.network import network_policy
from flowmesh_operator.pools.pod import ACKNOWLEDGE_S, pod_template
from flowmesh_operator.pools.surroundings import Surroundings

WANTED_METRIC = "flowmesh_pool_workers_wanted"
"""What an HPA and KEDA read: how many workers a pool should have, never fewer than are busy."""
_START_WITHIN_S = 1800
_KEPT_REVISIONS = 2
_KEDA_POLL_S = 5

Json = dict[str, Any]


def wanted_objects(
    pool: FlowMeshWorkerPool, around: Surroundings, *, keda: bool = False
) -> list[Json]:
    """Every object of the pool, in the order in which they are applied.

    Args:
        pool: as the API server gives it.
        around: where it runs.
        keda: whether the cluster knows ScaledObjects.
    """
    found = [
        _service_account(pool),
        network_policy(pool, around),
        _disruption_budget(pool),
        deployment(pool, around),
    ]
    if pool.spec.autoscaling.mode == "hpa":
        found.append(horizontal_autoscaler(pool))
    if pool.spec.autoscaling.mode == "keda" and keda:
        found.append(scaled_object(pool, around))
    return found


def deployment(pool: FlowMeshWorkerPool, around: Surroundings) -> Json:
    """The Deployment; ``replicas`` is in it only where nothing scales the pool."""
    spec: Json = {
        "selector": {"matchLabels": selector_labels(pool.metadata.name)},
        "strategy": _strategy(pool),
        "revisionHistoryLimit": _KEPT_REVISIONS,
        # Nodes may have to be started first, and large images pulled.
        "progressDeadlineSeconds": _START_WITHIN_S,
        "template": pod_template(pool, around),
    }
    if pool.spec.autoscaling.mode == "fixed":
        spec["replicas"] = pool.spec.max_replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": object_metadata(pool),
        "spec": spec,
    }


def _strategy(pool: FlowMeshWorkerPool) -> Json:
    """One after the other: a worker more may need a device that there is not."""
    if pool.spec.cache.claim_name is not None:
        return {"type": "Recreate"}  # two must not write to one claim
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def _service_account(pool: FlowMeshWorkerPool) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": object_metadata(pool),
        "automountServiceAccountToken": False,
    }


def _disruption_budget(pool: FlowMeshWorkerPool) -> Json:
    """Who drains nodes takes one worker of a pool at a time; one that is not up any time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": object_metadata(pool),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector_labels(pool.metadata.name)},
        },
    }


def horizontal_autoscaler(pool: FlowMeshWorkerPool) -> Json:
    """A HorizontalPodAutoscaler that gives the pool as many workers as the operator's metric says.

    An adapter answers it from Prometheus by the rules that the chart ships.
    """
    spec, name = pool.spec, pool.metadata.name
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": object_metadata(pool),
        "spec": {
            "scaleTargetRef": _target(name),
            "minReplicas": spec.min_replicas,
            "maxReplicas": max(1, spec.max_replicas),
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {
                            "name": WANTED_METRIC,
                            "selector": {"matchLabels": {"pool": name}},
                        },
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    },
                }
            ],
            "behavior": {
                "scaleUp": {
                    "policies": [
                        {"type": "Pods", "value": max(1, spec.max_replicas), "periodSeconds": 15}
                    ]
                },
                "scaleDown": _behaviour_down(spec.autoscaling.scale_down_after),
            },
        },
    }


def _target(pool: str) -> Json:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": object_name(pool)}


def _behaviour_down(after: str) -> Json:
    """The metric has waited already: what is added spans no more than a missed scrape."""
    return {"stabilizationWindowSeconds": min(round(seconds(after)), 30)}


def scaled_object(pool: FlowMeshWorkerPool, around: Surroundings) -> Json:
    """A ScaledObject that gives the pool as many workers as the operator's metric says."""
    spec, name = pool.spec, pool.metadata.name
    trigger = {
        "type": "metrics-api",
        "metricType": "AverageValue",
        "metadata": {
            "url": around.metrics_url,
            "format": "prometheus",
            "valueLocation": f'{WANTED_METRIC}{{pool="{name}"}}',
            "targetValue": "1",
            "activationTargetValue": "0",
            # The gateway's certificate may be of an authority that only workers know.
            "unsafeSsl": "true",
        },
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": object_metadata(pool),
        "spec": {
            "scaleTargetRef": _target(name),
            "minReplicaCount": spec.min_replicas,
            "maxReplicaCount": max(1, spec.max_replicas),
            "pollingInterval": _KEDA_POLL_S,
            # The metric has waited already.
            "cooldownPeriod": max(_KEDA_POLL_S, ACKNOWLEDGE_S),
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": _behaviour_down(spec.autoscaling.scale_down_after)}
                }
            },
            "triggers": [trigger],
        },
    }
