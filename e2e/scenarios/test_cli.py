"""``kubectl fmesh`` with a user's own rights, through the API server to the leader's pod."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import program, until

WITHIN_S = 240.0
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


@dataclass
class Person:
    """A service account that edits one namespace, with a kubeconfig of its own."""

    fabric: Fabric
    namespace: str
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def begin(self) -> None:
        """Makes the account, its rights, its kubeconfig, the plugin and a workflow."""
        run, where = self.fabric.kube.run, f"--namespace={self.namespace}"
        account = f"--serviceaccount={self.namespace}:person"
        run("create", "serviceaccount", "person", where)
        run("create", "rolebinding", "person", "--clusterrole=edit", account, where)
        forward = f"forward-{self.namespace}"
        run("create", "rolebinding", forward, "--role=flowmesh-forward", account, "-n", NAMESPACE)
        token = run("create", "token", "person", where).strip()
        config = yaml.safe_load(self.fabric.kube.kubeconfig.read_text())
        context = {"cluster": config["clusters"][0]["name"], "user": "person"}
        config["users"] = [{"name": "person", "user": {"token": token}}]
        config["contexts"] = [{"name": "here", "context": {**context, "namespace": self.namespace}}]
        config["current-context"] = "here"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        plugin = self.folder / "kubectl-fmesh"
        words = f"{shlex.quote(sys.executable)} -m flowmesh_cli.kubectl"
        plugin.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        plugin.chmod(0o755)
        (self.folder / "rows.jsonl").write_text('{"amount": 1}\n{"amount": 41}\n')
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "sums"},
            "spec": FLOW,
        }
        (self.folder / "sums.yaml").write_text(yaml.safe_dump(document))

    def fmesh(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """``kubectl fmesh``."""
        return subprocess.run(
            [program("kubectl"), "fmesh", *words],
            cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S, check=False,
            env={
                **os.environ,
                "KUBECONFIG": str(self.kubeconfig),
                "PATH": f"{self.folder}:{os.environ['PATH']}",
            },
        )  # fmt: skip

    def answer(self, *words: str) -> Any:
        """Its JSON answer."""
        done = self.fmesh(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def person(fabric: Fabric, tenant: Callable[[], str], tmp_path: Path) -> Person:
    made = Person(fabric, tenant(), tmp_path)
    made.begin()
    return made


def test_a_user_runs_a_workflow_from_files_and_reads_its_outputs(
    person: Person, told: Callable[[str], None]
) -> None:
    (run,) = person.answer("run", "sums.yaml")["runs"]
    assert (run["phase"], run["namespace"]) == ("Succeeded", person.namespace)
    found = person.fabric.look(person.namespace, "sums")
    assert found["metadata"]["uid"] == run["uid"]
    assert found["spec"]["inputs"]["rows"]["dataset"].startswith("cas:")
    person.answer("outputs", "sums", "--download", "out")
    assert json.loads((person.folder / "out" / "total.jsonl").read_text()) == {"total": 42}
    took = until(lambda: person.fmesh("status", "sums").returncode == 0, "status answers")
    told(f"kubectl fmesh status through the API server: {took:.1f} s")
    for words in (("receipt",), ("why", "sum"), ("logs",), ("lineage", "sums/total")):
        done = person.fmesh(*words)
        assert done.returncode == 0, (words, done.stderr)


def test_another_namespace_is_not_theirs(person: Person, tenant: Callable[[], str]) -> None:
    other = tenant()
    done = person.fmesh("submit", "sums.yaml", "-n", other)
    assert done.returncode == 4
    assert f"may not create flowmeshworkflows.flowmesh.dev in namespace {other}" in done.stderr


def test_the_next_leader_is_found_when_the_first_one_goes(person: Person) -> None:
    (leader,) = person.fabric.leaders()
    person.fabric.kube.run("delete", "pod", leader, "-n", NAMESPACE, "--wait=false")
    until(lambda: person.fabric.leaders() not in ([], [leader]), "another replica leads", 60.0)
    until(lambda: person.fmesh("status", "--all").returncode == 0, "status answers", 60.0)
