"""Pods of GPU pools run on nodes with their product and number of GPUs, past tolerated taints.

The node's status offers GPUs that it does not have, by which Kubernetes places pods. Nothing runs
on them.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import Kube, condition, until
from e2e.harness.machine import Machine

GPUS = 2
PRODUCT = "NVIDIA-H200"
TAINT = "nvidia.com/gpu"
TOLERATES = {"tolerations": [{"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}]}


@pytest.fixture
def gpu_node(fabric: Fabric, machine: Machine) -> Iterator[str]:
    """Yields the node with GPUs in its status, their product as a label, and their usual taint."""
    del machine  # only the e2e cluster's node is changed
    kube = fabric.kube
    (node,) = (n["metadata"]["name"] for n in kube.items("nodes"))
    _offer(kube, node, str(GPUS))
    kube.run("label", "node", node, f"nvidia.com/gpu.product={PRODUCT}")
    kube.run("taint", "node", node, f"{TAINT}=present:NoSchedule")
    yield node
    kube.run("taint", "node", node, f"{TAINT}-")
    kube.run("label", "node", node, "nvidia.com/gpu.product-")
    _offer(kube, node, None)


@pytest.fixture
def pool(fabric: Fabric) -> Iterator[Callable[..., str]]:
    """Creates pools of one worker; deletes them after the test."""
    made: list[str] = []

    def make(name: str, devices: dict[str, Any], **spec: Any) -> str:
        made.append(name)
        one = {"minReplicas": 1, "maxReplicas": 1, "devices": devices, "imagePullPolicy": "Never"}
        small = {"resources": {"cpu": 0.1, "memory": "256Mi"}, "engines": {"flavor": "gpu"}}
        fabric.kube.apply(
            {
                "apiVersion": "flowmesh.dev/v1alpha1",
                "kind": "FlowMeshWorkerPool",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"image": "localhost/no-such-worker:gpu", **one, **small, **spec},
            }
        )
        return name

    yield make
    for name in made:
        fabric.kube.run("delete", "fmwp", name, f"--namespace={NAMESPACE}")
    until(lambda: not any(fabric.workers(name) for name in made), "the pools' pods go", 120)


def test_pods_are_scheduled_by_requested_product_device_count_and_taint(
    fabric: Fabric, gpu_node: str, pool: Callable[..., str]
) -> None:
    one = pool("one-h200", {"product": PRODUCT}, **TOLERATES)
    until(lambda: _scheduled(fabric, one)[0] == "True", "the pod has a node", 60)
    (worker,) = fabric.workers(one)
    assert worker["spec"]["nodeName"] == gpu_node
    limits = worker["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "1"
    for name, devices, spec, why in (
        ("two-h200", {"product": PRODUCT, "count": 2}, TOLERATES, "Insufficient nvidia.com/gpu"),
        ("a100", {"product": "NVIDIA-A100"}, TOLERATES, "didn't match Pod's node affinity"),
        ("intolerant", {"product": PRODUCT}, {}, "untolerated taint"),
    ):
        assert why in _refusal(fabric, pool(name, devices, **spec)), name


def _refusal(fabric: Fabric, pool: str) -> str:
    """Returns why the pool's pod is not scheduled."""
    until(lambda: _scheduled(fabric, pool)[0] == "False", f"the pod of {pool} waits", 60)
    return _scheduled(fabric, pool)[1]


def _scheduled(fabric: Fabric, pool: str) -> tuple[str, str]:
    for worker in fabric.workers(pool):
        said = condition(worker, "PodScheduled")
        return said.get("status", ""), said.get("message", "")
    return "", ""


def _offer(kube: Kube, node: str, gpus: str | None) -> None:
    patch = json.dumps({"status": {"capacity": {"nvidia.com/gpu": gpus}}})
    kube.run("patch", "node", node, "--subresource=status", "--type=merge", f"--patch={patch}")
