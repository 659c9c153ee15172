"""The volumes of a pool's pods and the worker's mounts; its root file system is read-only."""

from typing import Any

from flowmesh_core.spec.pool import WorkerPoolSpec
from flowmesh_core.spec.quantities import mebibytes
from flowmesh_operator.kube.labels import TOKEN_AUDIENCE
from flowmesh_operator.pod_environment import PodEnvironment

HOME = "/var/lib/flowmesh"
TOKEN_FOLDER = "/var/run/secrets/flowmesh"
CA_FOLDER = "/etc/flowmesh/gateway"
STORE_CA_FOLDER = "/etc/flowmesh/store-ca"
CODE_FOLDER = "/run/flowmesh-code"
DEFAULT_CACHE = "20Gi"
TOKEN_S = 3600

Json = dict[str, Any]


def mounts(spec: WorkerPoolSpec, around: PodEnvironment) -> list[Json]:
    """Returns the worker container's volume mounts."""
    found: list[Json] = [
        {"name": "cache", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": True},
    ]
    if spec.user_code:
        found.append({"name": "code", "mountPath": CODE_FOLDER})
    if around.ca_secret:
        found.append({"name": "gateway-ca", "mountPath": CA_FOLDER, "readOnly": True})
    if around.store_ca_secret:
        found.append({"name": "store-ca", "mountPath": STORE_CA_FOLDER, "readOnly": True})
    if around.store_claim:
        found.append({"name": "store", "mountPath": around.store_path})
    return found


def volumes(spec: WorkerPoolSpec, around: PodEnvironment) -> list[Json]:
    """Returns the pod's volumes: empty directories, projected Secrets and claims; no host paths."""
    cache: Json = {"name": "cache"}
    if spec.cache.claim_name is not None:
        cache["persistentVolumeClaim"] = {"claimName": spec.cache.claim_name}
    else:
        cache["emptyDir"] = {"sizeLimit": spec.cache.size_limit or DEFAULT_CACHE}
    # The processes of one engine share tensors in it; it counts as the pod's memory.
    shared_mib = mebibytes(spec.resources.memory) // 2
    found: list[Json] = [
        cache,
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_mib}Mi"}},
        {
            "name": "token",
            "projected": {
                "sources": [
                    {
                        "serviceAccountToken": {
                            "audience": TOKEN_AUDIENCE,
                            "expirationSeconds": TOKEN_S,
                            "path": "token",
                        }
                    }
                ]
            },
        },
    ]
    if spec.user_code:
        found += [{"name": name, "emptyDir": {}} for name in ("code", "code-tmp")]
    for name, of in (("gateway-ca", around.ca_secret), ("store-ca", around.store_ca_secret)):
        if of:
            items = [{"key": "ca.crt", "path": "ca.crt"}]
            found.append({"name": name, "secret": {"secretName": of, "items": items}})
    if around.store_claim:
        claim = {"claimName": around.store_claim}
        found.append({"name": "store", "persistentVolumeClaim": claim})
    return found
