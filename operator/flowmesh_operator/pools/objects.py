"""Builds a pool's Kubernetes objects. Pure: the same pool gives the same objects.

:mod:`flowmesh_operator.pools.reconcile` applies them; tests compare them with snapshots and apply
them to a real API server.
"""

from typing import Any

from flowmesh_core.autoscaling.settings import SCALE_DOWN_S
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.quantities import seconds
from flowmesh_operator.kube.labels import object_metadata, object_name, selector_labels
from flowmesh_operator.pod_environment import PodEnvironment
from flowmesh_operator.pools.network import network_policy
from flowmesh_operator.pools.pod import ACKNOWLEDGE_S, pod_template

WANTED_METRIC = "flowmesh_pool_replicas_desired"
"""The metric that an HPA and KEDA read: how many workers a pool should have, and those above it
that must not be removed yet."""
_PROGRESS_DEADLINE_S = 1800
_REVISION_LIMIT = 2
_KEDA_POLL_S = 5

Json = dict[str, Any]


def wanted_objects(
    pool: FlowMeshWorkerPool, around: PodEnvironment, *, keda: bool = False, size: int = 0
) -> list[Json]:
    """Returns every object of the pool, in the order in which they are applied.

    Args:
        pool: the validated pool.
        around: the environment of all pools' pods.
        keda: whether the cluster serves ScaledObjects.
        size: the current size of its Deployment.
    """
    found = [
        _service_account(pool),
        network_policy(pool, around),
        _disruption_budget(pool),
        deployment(pool, around),
    ]
    if pool.spec.autoscaling.mode == "hpa":
        found.append(horizontal_autoscaler(pool, size))
    if pool.spec.autoscaling.mode == "keda" and keda:
        if around.metrics_secret:
            found.append(trigger_authentication(pool, around))
        found.append(scaled_object(pool, around, size))
    return found


def deployment(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    """Returns the Deployment; it has ``replicas`` only where nothing scales the pool."""
    spec: Json = {
        "selector": {"matchLabels": selector_labels(pool.metadata.name)},
        "strategy": _strategy(pool),
        "revisionHistoryLimit": _REVISION_LIMIT,
        # Nodes may have to start first, and large images have to be pulled.
        "progressDeadlineSeconds": _PROGRESS_DEADLINE_S,
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
    """Replaces one worker at a time: a surge pod may need a device that the cluster lacks."""
    if pool.spec.cache.claim_name is not None:
        return {"type": "Recreate"}  # two pods must not write to one claim
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def _service_account(pool: FlowMeshWorkerPool) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": object_metadata(pool),
        "automountServiceAccountToken": False,
    }


def _disruption_budget(pool: FlowMeshWorkerPool) -> Json:
    """Lets node drains evict one worker of a pool at a time, and unhealthy ones at any time."""
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


def horizontal_autoscaler(pool: FlowMeshWorkerPool, size: int = 0) -> Json:
    """Returns a HorizontalPodAutoscaler that sets the pool's size to the operator's metric.

    An adapter serves the metric from Prometheus by the rules that the chart ships.

    Args:
        pool: the validated pool.
        size: the current size of its Deployment.
    """
    spec, name = pool.spec, pool.metadata.name
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": object_metadata(pool),
        "spec": {
            "scaleTargetRef": _target(name),
            "minReplicas": spec.min_replicas,
            "maxReplicas": _max_replicas(pool, size),
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
            "behavior": _behavior(pool),
        },
    }


def _target(pool: str) -> Json:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": object_name(pool)}


def _max_replicas(pool: FlowMeshWorkerPool, size: int) -> int:
    """Returns the autoscaler's maximum: never below the size, or it would remove busy workers."""
    return max(1, pool.spec.max_replicas, size)


def _behavior(pool: FlowMeshWorkerPool) -> Json:
    """Scales up at once. The metric itself waits before it falls, so a short window is enough."""
    growth = {"type": "Pods", "value": max(1, pool.spec.max_replicas), "periodSeconds": 15}
    after = pool.spec.autoscaling.scale_down_after
    window_s = SCALE_DOWN_S if after is None else min(SCALE_DOWN_S, seconds(after))
    return {
        "scaleUp": {"policies": [growth]},
        "scaleDown": {"stabilizationWindowSeconds": round(window_s)},
    }


def trigger_authentication(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    """Returns KEDA's credentials for the gateway, and the authority that it trusts.

    The token may read metrics and nothing else. No server checks the client certificate: KEDA
    verifies a server by a private authority only where it has one.
    """
    pair = around.metrics_pair_secret or around.metrics_secret
    secrets = {
        "bearerToken": (around.metrics_secret, "token"),
        "cert": (pair, "tls.crt"),
        "key": (pair, "tls.key"),
    }
    targets = [
        {"parameter": parameter, "name": name, "key": key}
        for parameter, (name, key) in secrets.items()
    ]
    if around.ca_secret:
        targets.append({"parameter": "ca", "name": around.ca_secret, "key": "ca.crt"})
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": object_metadata(pool),
        "spec": {"secretTargetRef": targets},
    }


def scaled_object(pool: FlowMeshWorkerPool, around: PodEnvironment, size: int = 0) -> Json:
    """Returns a ScaledObject that sets the pool's size to the operator's metric.

    Args:
        pool: the validated pool.
        around: has the URL of the metric and its credentials.
        size: the current size of its Deployment.
    """
    spec, name = pool.spec, pool.metadata.name
    trigger: Json = {
        "type": "metrics-api",
        "metricType": "AverageValue",
        "metadata": {
            "url": around.metrics_url,
            "format": "prometheus",
            "valueLocation": f'{WANTED_METRIC}{{pool="{name}"}}',
            "targetValue": "1",
            "activationTargetValue": "0",
        },
    }
    if around.metrics_secret:
        trigger["metadata"]["authModes"] = "tls,bearer"
        trigger["authenticationRef"] = {"name": object_name(name)}
    else:  # metrics are open, and no authority for the gateway's certificate is configured
        trigger["metadata"]["unsafeSsl"] = "true"
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": object_metadata(pool),
        "spec": {
            "scaleTargetRef": _target(name),
            "minReplicaCount": spec.min_replicas,
            "maxReplicaCount": _max_replicas(pool, size),
            "pollingInterval": _KEDA_POLL_S,
            # Short, because the metric itself waits before it falls.
            "cooldownPeriod": max(_KEDA_POLL_S, ACKNOWLEDGE_S),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(pool)}},
            "triggers": [trigger],
        },
    }
