"""``kubectl fmesh`` with a user's own rights, through the API server to the leader's pod."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.cluster.project_images import THIN
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import until
from e2e.harness.pools import pool
from e2e.harness.user import User

FLOW = {
    "inputs": {"rows": {"dataset": "./rows.jsonl"}},
    "steps": [
        {
            "name": "sum",
            "uses": "data.sql",
            "inputs": {"t": "inputs.rows"},
            "with": {"query": "select sum(amount)::integer as total from t"},
        }
    ],
    "outputs": {"total": "sum.rows"},
}


@pytest.fixture
def user(fabric: Fabric, tenant: Callable[[], str], tmp_path: Path) -> User:
    made = User(fabric, tenant(), tmp_path)
    made.begin()
    (tmp_path / "rows.jsonl").write_text('{"amount": 1}\n{"amount": 41}\n')
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "sums"},
        "spec": FLOW,
    }
    (tmp_path / "sums.yaml").write_text(yaml.safe_dump(document))
    return made


def test_a_user_runs_a_workflow_from_files_and_reads_its_outputs(
    user: User, print_line: Callable[[str], None]
) -> None:
    (run,) = user.answer("run", "sums.yaml")["runs"]
    assert (run["phase"], run["namespace"]) == ("Succeeded", user.namespace)
    found = user.fabric.look(user.namespace, "sums")
    assert found["metadata"]["uid"] == run["uid"]
    assert found["spec"]["inputs"]["rows"]["dataset"].startswith("cas:")
    user.answer("outputs", "sums", "--download", "out")
    assert json.loads((user.folder / "out" / "total.jsonl").read_text()) == {"total": 42}
    took = until(lambda: user.fmesh("status", "sums").returncode == 0, "status answers")
    print_line(f"kubectl fmesh status through the API server: {took:.1f} s")
    for words in (("receipt",), ("why", "sum"), ("logs",), ("lineage", "sums/total")):
        done = user.fmesh(*words)
        assert done.returncode == 0, (words, done.stderr)


ZONES = {"zone-holder": "a", "zone-far": "b", "zone-near": "a"}
"""Pools of one worker. Of equal ones the first by name would be chosen, which is the far one."""
IN_ZONES = {
    "steps": [
        # An engine in both, since one that runs is worth more than content in the zone.
        *(
            {
                "name": f"warm-{name}",
                "uses": "data.sql",
                "with": {"query": f"select '{name}' as name"},
                "resources": {"labels": {"where": name}},
            }
            for name in ("zone-far", "zone-near")
        ),
        {
            "name": "make",
            "uses": "data.sql",
            "with": {"query": "select md5(n::text) as t from range(400000) r(n)"},
            "resources": {"labels": {"where": "zone-holder"}},
        },
        {
            "name": "use",
            "uses": "data.sql",
            "inputs": {"t": "make.rows"},
            "after": ["warm-zone-far", "warm-zone-near"],
            "with": {"query": "select max(t) as t from t"},
            "resources": {"labels": {"test": "zones"}, "antiLabels": {"where": "zone-holder"}},
        },
    ],
}


@pytest.mark.full
def test_work_goes_to_the_zone_that_has_its_content(user: User) -> None:
    def spec(name: str) -> dict[str, Any]:
        return {
            "image": THIN.name,
            "imagePullPolicy": "Never",
            "engines": {"flavor": "thin"},
            "minReplicas": 1,
            "maxReplicas": 1,
            "resources": {"cpu": 0.25, "memory": "1Gi"},
            "labels": {"where": name, "test": "zones"},
            # As Kubernetes copies it from a node.
            "podTemplate": {"metadata": {"labels": {"topology.kubernetes.io/zone": ZONES[name]}}},
        }

    kube, here = user.fabric.kube, f"--namespace={NAMESPACE}"
    document = {"apiVersion": "flowmesh.dev/v1alpha1", "kind": "FlowMeshWorkflow"}
    document |= {"metadata": {"name": "zones"}, "spec": IN_ZONES}
    (user.folder / "zones.yaml").write_text(yaml.safe_dump(document))
    with ExitStack() as pools:
        for name in ZONES:
            pools.enter_context(pool(user.fabric, name, spec(name)))
        for name in ZONES:
            kube.run("wait", f"fmwp/{name}", here, "--for=condition=Ready", "--timeout=120s")
            until(lambda n=name: kube.get("fmwp", n, here)["status"]["ready"] == 1, name, 120)
        (run,) = user.answer("run", "zones.yaml")["runs"]
        assert run["phase"] == "Succeeded"
        said = user.fmesh("why", "use").stdout
        assert "flowmesh-pool-zone-near-" in said, user.fmesh("explain", "use").stdout


def test_a_user_cannot_submit_to_a_namespace_of_another_tenant(
    user: User, tenant: Callable[[], str]
) -> None:
    other = tenant()
    done = user.fmesh("submit", "sums.yaml", "-n", other)
    assert done.returncode == 4
    assert f"may not create flowmeshworkflows.flowmesh.dev in namespace {other}" in done.stderr


def test_the_cli_finds_the_next_leader_after_the_first_one_is_deleted(user: User) -> None:
    leader = user.fabric.leader()
    user.fabric.kube.run("delete", "pod", leader, "-n", NAMESPACE, "--wait=false")
    until(lambda: user.fabric.leaders() not in ([], [leader]), "another replica leads", 60.0)
    until(lambda: user.fmesh("status", "--all").returncode == 0, "status answers", 60.0)
