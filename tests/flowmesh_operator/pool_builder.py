"""Pools for tests, as the API server returns them."""

from typing import Any

from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.pod_environment import PodEnvironment

IMAGE = "flowmesh-worker:test"


def pool_object(
    spec: dict[str, Any], name: str = "cpu", namespace: str = "flowmesh"
) -> dict[str, Any]:
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkerPool",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": {"image": IMAGE, **spec},
    }


def make_pool(
    spec: dict[str, Any] | None = None, name: str = "cpu", namespace: str = "flowmesh"
) -> FlowMeshWorkerPool:
    found = parse_object(pool_object(spec or {}, name, namespace))
    assert isinstance(found, FlowMeshWorkerPool)
    return found


AROUND = PodEnvironment(
    namespace="flowmesh",
    gateway="wss://flowmesh-gateway.flowmesh.svc:8470",
    store="s3://flowmesh?endpoint=http://flowmesh-store.flowmesh.svc:7070&region=us-east-1",
    ca_secret="flowmesh-gateway-tls",
    blob_service="https://flowmesh-blobs.flowmesh.svc:8472",
    metrics_url="https://flowmesh-gateway.flowmesh.svc:8470/metrics",
    metrics_secret="flowmesh-keda",
    metrics_pair_secret="flowmesh-keda-pair",
)
FULL: dict[str, Any] = {
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "maxReplicas": 3,
    "resources": {"cpu": 2.5, "memory": "32Gi", "ephemeralStorage": "10Gi"},
    "devices": {"count": 2, "product": "NVIDIA-H200"},
    "price": {"usdPerHour": "2.10", "capacity": "spot"},
    "power": {"loadWatts": 900, "idleWatts": 120.5},
    "userCode": True,
    "labels": {"team": "research", "a": "b"},
    "nodeSelector": {"disk": "nvme"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "podTemplate": {
        "metadata": {"labels": {"cost-center": "7"}, "annotations": {"note": "x"}},
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "zone", "operator": "In", "values": ["a"]}
                                ]
                            },
                            {
                                "matchExpressions": [
                                    {"key": "zone", "operator": "In", "values": ["b"]}
                                ]
                            },
                        ]
                    }
                }
            },
            "priorityClassName": "flowmesh-low",
            "supplementalGroups": [44],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {
                    "env": [{"name": "HOME", "value": "/elsewhere"}, {"name": "X", "value": "1"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    },
    "cache": {"sizeLimit": "100Gi"},
    "drainGrace": "90s",
    "serving": {"peers": True},
}
