"""``kubectl fmesh``, and a program with the Python client, with a user's own rights.

The command goes through the API server to the leader's pod, the program through the gateway.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from e2e.harness.client_pod import BASE_IMAGE, ClientPod, give_client
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import until
from e2e.harness.user import User

PROGRAM = Path(__file__).parents[1] / "harness" / "python_client.py"
NOT_FOUND = 5
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


def test_a_user_deletes_a_run_with_its_object(user: User) -> None:
    (run,) = user.answer("run", "sums.yaml")["runs"]
    (deleted,) = user.answer("delete", "sums", "--yes")["deleted"]
    assert deleted["uid"] == run["uid"]
    assert (
        user.fabric.kube.run("get", "fmw", f"--namespace={user.namespace}", "--output=name") == ""
    )
    assert user.fmesh("status", run["uid"]).returncode == NOT_FOUND


def test_a_program_in_a_pod_runs_a_workflow_with_the_rights_of_its_account(user: User) -> None:
    kube, where = user.fabric.kube, f"--namespace={user.namespace}"
    give_client(user.fabric, user.namespace, PROGRAM, "flowmesh-gateway-tls")
    program = ClientPod(user.fabric, user.namespace, "program")
    arguments = [(user.folder / "sums.yaml").read_text()]
    program.start(BASE_IMAGE, arguments, {"FABRIC": NAMESPACE}, account="user")
    found = program.result(240.0)
    assert found["rows"] == [{"total": 42}]
    assert (found["phase"], found["namespace"]) == ("Succeeded", user.namespace)
    made = kube.get("fmw", "sums", where)
    assert made["metadata"]["uid"] == found["uid"], "the object stays"
    stranger = ClientPod(user.fabric, user.namespace, "stranger")
    stranger.start(BASE_IMAGE, arguments, {"FABRIC": NAMESPACE})
    until(lambda: "may not" in stranger.log() or "forbidden" in stranger.log(), "it is refused", 60)


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
