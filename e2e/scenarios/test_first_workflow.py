"""A workflow on a fresh installation: from no worker to a result, and back to no worker."""

from collections.abc import Callable

import pytest
from e2e.cluster.project_images import THIN
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import Json, condition, until
from e2e.harness.pools import pool
from e2e.harness.timeline import Timeline, pod_parts

POOL = "thin"
NAMED_WITHIN_S = 10.0
"""From what a pod says to the condition of its pool."""
TWO_STEPS = {
    "inputs": {"people": {"rows": [{"name": "ada", "age": 36}, {"name": "bob", "age": 41}]}},
    "steps": [
        {"name": "ready", "uses": "test.noop", "with": {"value": 1}},
        {
            "name": "oldest",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.people"},
            "with": {"query": "select name from rows order by age desc limit 1"},
        },
    ],
    "outputs": {"oldest": "oldest.rows"},
}


def test_a_pool_grows_from_zero_for_a_workflow_and_shrinks_again(
    fabric: Fabric, tenant: Callable[[], str], print_line: Callable[[str], None]
) -> None:
    team = tenant()
    until(lambda: wanted(fabric) == 0, "the pool has no worker", 120)
    line = Timeline(fabric.kube.kubeconfig)
    line.follow_workflows(team, workflow_parts)
    line.follow_deployments(NAMESPACE, deployment_parts)
    line.follow_pods(NAMESPACE, pod_parts(POOL))
    line.start()
    fabric.submit(team, "first", TWO_STEPS)
    line.mark("applied")
    status = fabric.completed(team, "first")
    fabric.kube.run(
        "wait", "fmw/first", f"--namespace={team}", "--for=condition=Complete", "--timeout=60s"
    )
    line.end()
    print_line("first workflow: " + ", ".join(f"{k} {v:.1f} s" for k, v in line.marks().items()))
    assert status["outputs"]["oldest"]["rows"] == 1
    assert status["observedGeneration"] == 1
    took = until(lambda: not fabric.workers(POOL), "the pool shrinks to no worker", 120)
    print_line(f"back to zero {took:.1f} s after the end")


def _ready(fabric: Fabric) -> Json:
    found = fabric.kube.get("fmwp", "cannot-start", f"--namespace={NAMESPACE}")
    return condition(found, "Ready")


def _said_by_pods(fabric: Fabric, pool: str) -> set[str]:
    """The reasons why the scheduler or the kubelet lets pods of a pool wait."""
    chosen = f"--selector=flowmesh.dev/pool={pool}"
    pods = fabric.kube.items("pods", chosen, f"--namespace={NAMESPACE}")
    statuses = [pod.get("status", {}) for pod in pods]
    conditions = [c for status in statuses for c in status.get("conditions", [])]
    containers = [c for status in statuses for c in status.get("containerStatuses", [])]
    waiting = [c["state"]["waiting"] for c in containers if "waiting" in c.get("state", {})]
    return {str(said.get("reason", "")) for said in (*conditions, *waiting)}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"image": f"{THIN.name}-absent"}, "ErrImageNeverPull"),
        ({"nodeSelector": {"flowmesh.test/there-is": "no-such-node"}}, "Unschedulable"),
    ],
)
def test_a_pool_whose_pods_cannot_start_names_the_reason(
    fabric: Fabric, wrong: Json, reason: str, print_line: Callable[[str], None]
) -> None:
    spec = {
        "image": THIN.name,
        "imagePullPolicy": "Never",
        "engines": {"flavor": "thin"},
        "minReplicas": 1,
        "maxReplicas": 1,
        "resources": {"cpu": 0.1, "memory": "256Mi"},
        **wrong,
    }
    with pool(fabric, "cannot-start", spec):
        until(lambda: reason in _said_by_pods(fabric, "cannot-start"), f"a pod says {reason}", 60)
        took = until(lambda: _ready(fabric).get("reason") == reason, f"it names {reason}", 60)
        print_line(f"{reason} is named {took:.1f} s after the pod says it")
        assert took < NAMED_WITHIN_S
        ready = _ready(fabric)
        assert ready["status"] == "False"
        assert "pod flowmesh-pool-cannot-start-" in ready["message"]


def test_a_repeated_workflow_completes_from_the_cache_without_a_worker(
    fabric: Fabric, tenant: Callable[[], str]
) -> None:
    team = tenant()
    fabric.submit(team, "first", TWO_STEPS)
    fabric.completed(team, "first")
    until(lambda: not fabric.workers(POOL), "the pool shrinks to no worker", 120)
    fabric.submit(team, "again", TWO_STEPS)
    status = fabric.completed(team, "again")
    assert status.get("executed", 0) == 0  # a status omits zeros
    assert status["hits"] == status["actions"]
    assert not fabric.workers(POOL)


def test_a_workflow_that_does_not_compile_is_refused_at_once(
    fabric: Fabric, tenant: Callable[[], str], print_line: Callable[[str], None]
) -> None:
    team = tenant()
    steps = [{"name": "a", "uses": "data.sql", "inputs": {"rows": "b.rows"},
              "with": {"query": "select 1"}}]  # fmt: skip
    fabric.submit(team, "wrong", {"steps": steps})
    took = until(
        lambda: condition(fabric.look(team, "wrong"), "Accepted").get("status") == "False",
        "the workflow is refused",
    )
    assert "no step 'b'" in condition(fabric.look(team, "wrong"), "Accepted")["message"]
    print_line(f"a workflow that does not compile is refused after {took:.1f} s")


def wanted(fabric: Fabric) -> int:
    found = fabric.kube.get("deployment", f"flowmesh-pool-{POOL}", f"--namespace={NAMESPACE}")
    return int(found["spec"]["replicas"])


def workflow_parts(line: Timeline, found: Json) -> None:
    if condition(found, "Accepted").get("status") == "True":
        line.mark("accepted")
    status = found.get("status") or {}
    if any(s["state"] in ("RUNNING", "COMPLETED") for s in status.get("steps") or []):
        line.mark("first step seen running")
    if condition(found, "Complete").get("status") == "True":
        line.mark("complete")


def deployment_parts(line: Timeline, found: Json) -> None:
    if found["metadata"]["name"] == f"flowmesh-pool-{POOL}" and found["spec"]["replicas"]:
        line.mark("worker asked for")
