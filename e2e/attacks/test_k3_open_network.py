"""Attacker: T4, user code that has left its sandbox in a worker's pod.
Action: opens connections that the chart's network policies forbid.
Must not happen: they succeed.

Each connection, tried: ``e2e/scenarios/test_services.py``. Which connections the rendered policies
allow: ``tests/attacks/test_k3_open_network.py``.
"""

from typing import TYPE_CHECKING

from e2e.harness.fabric import NAMESPACE, Fabric

if TYPE_CHECKING:
    import subprocess
    from concurrent.futures import Future

HERE = f"--namespace={NAMESPACE}"
POLICIES = {"flowmesh-network-test"}


def test_the_installed_policies_select_every_pod(fabric: Fabric, attacked_pool: str) -> None:
    found = {p["metadata"]["name"]: p["spec"] for p in fabric.kube.items("networkpolicies", HERE)}
    assert found.keys() >= POLICIES
    selectors = [spec["podSelector"].get("matchLabels", {}) for spec in found.values()]
    for pod in fabric.kube.items("pods", HERE):
        labels = pod["metadata"].get("labels", {})
        assert any(wanted.items() <= labels.items() for wanted in selectors), pod["metadata"]
    for worker in fabric.workers(attacked_pool):
        labels = worker["metadata"]["labels"]
        of_worker = [
            spec
            for spec, wanted in zip(found.values(), selectors, strict=True)
            if wanted.items() <= labels.items()
        ]
        assert {"Ingress", "Egress"} <= {t for s in of_worker for t in s["policyTypes"]}


def test_helm_test_finds_that_this_network_enforces_policies(
    network_probe: "Future[subprocess.CompletedProcess[str]]",
) -> None:
    done = network_probe.result()
    assert done.returncode == 0, done.stderr
    assert "Succeeded" in done.stdout
