"""A pool for which the cluster has no node: work that another pool can run does not wait."""

from collections.abc import Callable

import pytest
from e2e.cluster.project_images import THIN
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import condition, until
from e2e.harness.pools import pool
from e2e.harness.timeline import Timeline
from e2e.scenarios.test_growing import query

pytestmark = pytest.mark.full
POOL = "scarce"
SPEC = {
    "image": THIN.name,
    "imagePullPolicy": "Never",
    "engines": {"flavor": "thin"},
    "maxReplicas": 1,
    "resources": {"cpu": 0.25, "memory": "1536Mi"},
    "price": {"usdPerHour": "0.01"},
    "nodeSelector": {"flowmesh.test/there-is": "no-such-node"},
    "autoscaling": {"scaleDownAfter": "30s"},
}
"""As the pool of the values, and far cheaper."""


def test_work_moves_to_another_pool_when_a_pool_cannot_get_workers(
    fabric: Fabric, tenant: Callable[[], str], print_line: Callable[[str], None]
) -> None:
    team = tenant()
    until(lambda: not fabric.workers("thin"), "the other pool has no worker", 120)
    line = Timeline(fabric.kube.kubeconfig)
    with pool(fabric, POOL, SPEC):
        fabric.submit(team, "patient", {"steps": [query("q", 1_000)]})
        line.mark("applied")
        until(lambda: bool(fabric.workers(POOL)), "the cheap pool is asked for a worker", 60)
        line.mark("asked the cheap pool")
        assert not fabric.workers("thin")
        until(lambda: bool(fabric.workers("thin")), "the other is asked too", 300)
        line.mark("asked the other")
        fabric.completed(team, "patient")
        line.mark("complete")
        ready = condition(fabric.kube.get("fmwp", POOL, f"--namespace={NAMESPACE}"), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Unschedulable")
        assert "0 of 1 workers are connected" in ready["message"]
        until(lambda: not fabric.workers(POOL), "its worker is asked for no longer", 120)
        line.mark("withdrawn")
    print_line("scarce: " + ", ".join(f"{k} {v:.1f} s" for k, v in line.marks().items()))
