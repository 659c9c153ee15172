"""What a pool is made of on the cluster. Pure: the same pool gives the same objects.

Applied by :mod:`flowmesh_operator.pools.reconcile`; held by snapshots and against a real API server
by tests.
"""

from typing import Any

from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.quantities import seconds
from flowmesh_operator.kube.labels import object_metadata, object_name, selector_labels
from flowmesh_operator.pod_environment import PodEnvironment
from flowmesh_operator.pools.network import network_policy
from flowmesh_operator.pools.pod import ACKNOWLEDGE_S, pod_template

WANTED_METRIC = "flowmesh_pool_workers_wanted"
"""What an HPA and KEDA read: how many workers a pool should have, and above them those that must
not be taken yet."""
_START_WITHIN_S = 1800
_KEPT_REVISIONS = 2
_KEDA_POLL_S = 5

Json = dict[str, Any]


def wanted_objects(
    pool: FlowMeshWorkerPool, around: PodEnvironment, *, keda: bool = False, size: int = 0
) -> list[Json]:
    """Every object of the pool, in the order in which they are applied.

    Args:
        pool: as the API server gives it.
        around: where it runs.
        keda: whether the cluster knows ScaledObjects.
        size: how many workers its Deployment asks for now.
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


def horizontal_autoscaler(pool: FlowMeshWorkerPool, size: int = 0) -> Json:
    """A HorizontalPodAutoscaler that gives the pool as many workers as the operator's metric says.

    An adapter answers it from Prometheus by the rules that the chart ships.

    Args:
        pool: as the API server gives it.
        size: how many workers its Deployment asks for now.
    """
    spec, name = pool.spec, pool.metadata.name
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": object_metadata(pool),
        "spec": {
            "scaleTargetRef": _target(name),
            "minReplicas": spec.min_replicas,
            "maxReplicas": _most(pool, size),
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
            "behavior": _behaviour(pool),
        },
    }


def _target(pool: str) -> Json:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": object_name(pool)}


def _most(pool: FlowMeshWorkerPool, size: int) -> int:
    """An autoscaler takes whom it likes above its maximum: it comes down with the pool's size."""
    return max(1, pool.spec.max_replicas, size)


def _behaviour(pool: FlowMeshWorkerPool) -> Json:
    """At once to more; to fewer the metric has waited: only a missed scrape is left to span."""
    growth = {"type": "Pods", "value": max(1, pool.spec.max_replicas), "periodSeconds": 15}
    calm_s = round(seconds(pool.spec.autoscaling.scale_down_after))
    return {
        "scaleUp": {"policies": [growth]},
        "scaleDown": {"stabilizationWindowSeconds": min(calm_s, 30)},
    }


def trigger_authentication(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    """What KEDA shows the gateway, and trusts of it.

    The token may read metrics and nothing else. The pair is shown to nobody: KEDA checks a server's
    certificate against an authority of one's own only where it has one.
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
    """A ScaledObject that gives the pool as many workers as the operator's metric says.

    Args:
        pool: as the API server gives it.
        around: where KEDA reads the metric.
        size: how many workers its Deployment asks for now.
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
    else:  # where metrics are open, and nothing says whose certificate the gateway has
        trigger["metadata"]["unsafeSsl"] = "true"
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": object_metadata(pool),
        "spec": {
            "scaleTargetRef": _target(name),
            "minReplicaCount": spec.min_replicas,
            "maxReplicaCount": _most(pool, size),
            "pollingInterval": _KEDA_POLL_S,
            # The metric has waited already.
            "cooldownPeriod": max(_KEDA_POLL_S, ACKNOWLEDGE_S),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behaviour(pool)}},
            "triggers": [trigger],
        },
    }
