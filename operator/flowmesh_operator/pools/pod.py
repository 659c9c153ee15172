"""The pod template of a pool: one worker, under the *restricted* Pod Security Standard.

Probes check files that the agent writes (``--health-dir``), since a worker has no port for them.
The pod becomes ready when its worker is welcomed, and stays ready: a shrinking ReplicaSet deletes
pods that are not ready first, and they must not be busy ones.
"""

from typing import Any

from flowmesh_core.spec.pool import FlowMeshWorkerPool, WorkerPoolSpec
from flowmesh_core.spec.pool_template import WORKER_CONTAINER
from flowmesh_core.spec.quantities import mebibytes, seconds
from flowmesh_operator.kube.labels import CAPACITY_LABEL, PEERS_LABEL, object_name, selector_labels
from flowmesh_operator.pod_environment import IMPORT_REFUSE, LLM, PodEnvironment
from flowmesh_operator.pools.network import PEER_PORT
from flowmesh_operator.pools.overrides import overlaid
from flowmesh_operator.pools.volumes import (
    CA_FOLDER,
    CODE_FOLDER,
    DEFAULT_CACHE,
    HOME,
    STORE_CA_FOLDER,
    TOKEN_FOLDER,
    mounts,
    volumes,
)
from flowmesh_operator.pools.worker_shape import engine_memory_mib, threads
from flowmesh_store.blobs import DEFAULT_GRACE_S

USER = 10001
HEALTH_FOLDER = "/tmp/flowmesh-health"
ACKNOWLEDGE_S = 20
"""Time after the drain grace to publish results and end the processes."""
CODE_CONTAINER = "code"
CODE_USER = 10002
CODE_SOCKET = f"{CODE_FOLDER}/socket"
CODE_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_PTRACE",
)  # fmt: skip
"""Of the sidecar in the pod's user namespace; it tests for them before it switches users."""
_CODE_SHARE = 4
"""Users' code gets a quarter of the worker's memory in addition to it."""
_CACHE_SHARE = 0.8
_ZONE = "metadata.labels['topology.kubernetes.io/zone']"
_MILLI = 1000

Json = dict[str, Any]

_CONFINED: Json = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_template(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    """Returns the template of the pool's pods, merged with its own ``podTemplate``."""
    spec = pool.spec
    labels = selector_labels(pool.metadata.name)
    if spec.price is not None:
        labels = {**labels, CAPACITY_LABEL: spec.price.capacity}
    if spec.serving.peers:
        labels = {**labels, **PEERS_LABEL}
    pod: Json = {
        "serviceAccountName": object_name(pool.metadata.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": round(seconds(spec.drain_grace)) + ACKNOWLEDGE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_worker(pool, around)],
        "volumes": volumes(spec, around),
    }
    if spec.user_code:
        pod["initContainers"] = [_user_code_sidecar(spec)]
        if not spec.sandbox.host_users:
            pod["hostUsers"] = False
    if spec.sandbox.runtime_class_name:
        pod["runtimeClassName"] = spec.sandbox.runtime_class_name
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    if spec.node_selector:
        pod["nodeSelector"] = spec.node_selector
    if spec.tolerations:
        pod["tolerations"] = [
            t.model_dump(by_alias=True, exclude_unset=True, mode="json") for t in spec.tolerations
        ]
    if spec.devices is not None and spec.devices.product:
        pod["affinity"] = _on_product(spec.devices.product_label, spec.devices.product)
    return overlaid({"metadata": {"labels": labels}, "spec": pod}, spec.pod_template)


def _worker(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    spec = pool.spec
    container: Json = {
        "name": WORKER_CONTAINER,
        "image": spec.image,
        "command": ["python", "-m", "flowmesh_worker"],
        "args": _arguments(pool, around),
        "env": [
            _from_pod("POD_NAME", "metadata.name"),
            _from_pod("NODE_NAME", "spec.nodeName"),
            # Kubernetes copies a node's topology labels to its pods (from 1.35; empty before).
            _from_pod("ZONE", _ZONE),
            {"name": "HOME", "value": HOME},
            # Libraries look up the user's name, and the image has none for this uid.
            {"name": "USER", "value": "flowmesh"},
        ],
        "resources": _resources(spec),
        "securityContext": _CONFINED,
        **_probes(),
        "volumeMounts": mounts(spec, around),
    }
    if spec.user_code:
        container["env"].append({"name": "FLOWMESH_CODE_SOCKET", "value": CODE_SOCKET})
    if spec.serving.peers:
        container["ports"] = [{"name": "peers", "containerPort": PEER_PORT, "protocol": "TCP"}]
    if around.refused_networks:
        refused = ",".join(around.refused_networks)
        container["env"].append({"name": IMPORT_REFUSE, "value": refused})
    if spec.llm is not None:
        settings = spec.llm.model_dump_json(by_alias=True, exclude_none=True)
        container["env"].append({"name": LLM, "value": settings})
    if spec.image_pull_policy is not None:
        container["imagePullPolicy"] = spec.image_pull_policy
    return container


def _user_code_sidecar(spec: WorkerPoolSpec) -> Json:
    """Returns the sidecar in which users' code runs: another uid, no mounts of the worker.

    In a user namespace it is root there and runs each tenant's code under a uid of its own. A
    sidecar container starts before the worker, ends after it, and is restarted on its own.
    """
    memory = f"{mebibytes(spec.resources.memory) // _CODE_SHARE}Mi"
    container: Json = {
        "name": CODE_CONTAINER,
        "image": spec.image,
        "command": ["python", "-m", "flowmesh_worker.engines.code.sidecar", CODE_SOCKET],
        "restartPolicy": "Always",
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {
            "requests": {"cpu": "100m", "memory": memory},
            "limits": {"cpu": _cpu(spec.resources.cpu), "memory": memory},
        },
        "securityContext": _code_security(spec),
        "volumeMounts": [
            {"name": "code", "mountPath": CODE_FOLDER},
            {"name": "code-tmp", "mountPath": "/tmp"},
        ],
    }
    if spec.image_pull_policy is not None:
        container["imagePullPolicy"] = spec.image_pull_policy
    return container


def _code_security(spec: WorkerPoolSpec) -> Json:
    if spec.sandbox.host_users:
        return {**_CONFINED, "runAsUser": CODE_USER, "runAsGroup": CODE_USER}
    return {
        **_CONFINED,
        "runAsNonRoot": False,
        "runAsUser": 0,
        "runAsGroup": USER,  # the socket is the group's
        "capabilities": {"drop": ["ALL"], "add": list(CODE_CAPABILITIES)},
    }


def _arguments(pool: FlowMeshWorkerPool, around: PodEnvironment) -> list[str]:
    spec = pool.spec
    found = [
        f"--gateway={around.gateway}",
        f"--store={around.blob_service or around.store}",
        "--name=$(POD_NAME)",
        f"--pool={pool.metadata.name}",
        "--node=$(NODE_NAME)",
        "--zone=$(ZONE)",
        f"--token-file={TOKEN_FOLDER}/token",
        f"--health-dir={HEALTH_FOLDER}",
        f"--cache-dir={HOME}/worker",
        f"--memory-mib={engine_memory_mib(spec)}",
        f"--cpus={threads(spec)}",
        f"--grace={seconds(spec.drain_grace):g}",
    ]
    if spec.cache.claim_name is None:
        size_mib = mebibytes(spec.cache.size_limit or DEFAULT_CACHE)
        found.append(f"--cache-bytes={int(size_mib * _CACHE_SHARE) << 20}")
    if around.ca_secret:
        found.append(f"--gateway-ca={CA_FOLDER}/ca.crt")
    if around.store_ca_secret:
        found.append(f"--store-ca={STORE_CA_FOLDER}/ca.crt")
    if around.store_path and around.store_grace_s != DEFAULT_GRACE_S:
        found.append(f"--store-grace={around.store_grace_s:g}")
    if spec.price is not None:
        found.append(f"--price-usd-per-hour={spec.price.usd_per_hour}")
        found += ["--spot"] if spec.price.capacity == "spot" else []
    if spec.power is not None:
        found.append(f"--power-w={spec.power.load_watts:g}")
        found.append(f"--idle-w={spec.power.idle_watts:g}")
    if spec.user_code:
        found += ["--allow-user-code", f"--sandbox-minimum={spec.sandbox.minimum}"]
    if spec.serving.peers:
        found.append(f"--peer-port={PEER_PORT}")
    if spec.devices is None:
        found.append("--cpu-only")
    return [*found, *(f"--label={k}={v}" for k, v in sorted(spec.labels.items()))]


def _resources(spec: WorkerPoolSpec) -> Json:
    """Returns equal requests and limits: a worker plans with all of its memory and threads."""
    quantities = {"cpu": _cpu(spec.resources.cpu), "memory": spec.resources.memory}
    if spec.resources.ephemeral_storage is not None:
        size_mib = mebibytes(spec.resources.ephemeral_storage)
        if spec.cache.claim_name is None:
            size_mib = type(size_mib)(size_mib + mebibytes(spec.cache.size_limit or DEFAULT_CACHE))
        quantities["ephemeral-storage"] = f"{size_mib}Mi"
    if spec.devices is not None:
        quantities[spec.devices.resource_name] = str(spec.devices.count)
    return {"requests": quantities, "limits": dict(quantities)}


def _cpu(cpus: float) -> str:
    milli = round(cpus * _MILLI)
    return f"{milli}m" if milli % _MILLI else str(milli // _MILLI)


def _probes() -> Json:
    """Returns probes that check files: they need no port, and every image has sh and find."""
    alive = ["sh", "-c", f"find {HEALTH_FOLDER}/alive -mmin -2 | grep -q ."]
    ready = ["sh", "-c", f"test -e {HEALTH_FOLDER}/ready"]
    return {
        # The first start may read a large image's libraries from a slow disk.
        "startupProbe": {
            "exec": {"command": ready},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 450,
        },
        "readinessProbe": {
            "exec": {"command": ready},
            "periodSeconds": 15,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "exec": {"command": alive},
            "periodSeconds": 30,
            "timeoutSeconds": 10,
            "failureThreshold": 4,
        },
    }


def _on_product(label: str, product: str) -> Json:
    term = {"matchExpressions": [{"key": label, "operator": "In", "values": [product]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _from_pod(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
