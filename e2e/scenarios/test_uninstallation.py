"""An uninstallation keeps the promised objects, and the next installation uses them."""

from collections.abc import Callable

import pytest
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import until

HERE = f"--namespace={NAMESPACE}"
KEPT = "[PersistentVolumeClaim] flowmesh-store"
KEYS = ("flowmesh-master-key", "flowmesh-gateway-tls", "flowmesh-router-tls",
        "flowmesh-store-operator")  # fmt: skip
WORK = {"steps": [{"name": "one", "uses": "test.noop", "with": {"value": "kept"}}]}


@pytest.mark.full
def test_results_survive_an_uninstallation_that_lists_the_retained_objects(
    fabric: Fabric, tenant: Callable[[], str]
) -> None:
    team = tenant()
    fabric.submit(team, "before", WORK)
    assert fabric.completed(team, "before")["executed"] == 1
    keys = [fabric.kube.get("secret", name, HERE)["data"] for name in KEYS]
    assert KEPT in fabric.uninstall()
    until(lambda: not fabric.kube.items("pods", HERE), "operator, workers and store are gone", 90)
    left = fabric.kube.run(
        "get", "deployments,services,networkpolicies,fmwp", HERE, "--output=name"
    )
    assert not left.split()
    assert fabric.status(team, "before")["phase"] == "Succeeded"
    fabric.submit(team, "after", WORK)
    fabric.install()
    assert [fabric.kube.get("secret", name, HERE)["data"] for name in KEYS] == keys
    status = fabric.completed(team, "after")
    assert (status.get("executed", 0), status["hits"]) == (0, 1)
