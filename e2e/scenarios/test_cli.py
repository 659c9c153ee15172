"""``kubectl fmesh`` with a user's own rights, through the API server to the leader's pod."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import until
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
