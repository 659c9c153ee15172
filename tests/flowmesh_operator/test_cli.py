"""``fmesh`` against a cluster: a real API server and operator, two users, the gateway's address.

Through the API server (a port-forward) needs a kubelet: that is ``e2e``'s.
"""

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import trustme
import yaml
from tests.flowmesh_cli.calling import COMMAND, environment
from tests.flowmesh_operator.api_server import ApiServer, until
from tests.flowmesh_operator.replicas import Replicas, replicas
from tests.flowmesh_operator.user_roles import EDIT, LOOK, grant

pytestmark = pytest.mark.slow

WITHIN_S = 400.0


@dataclass
class Cluster:
    """An operator with TLS and a worker, and its users: ada edits one namespace, ben looks."""

    server: ApiServer
    fabric: Replicas
    ca: Path
    folder: Path
    namespace: str

    def fmesh(
        self, who: str, *words: str | Path, command: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``fmesh`` as a user."""
        return subprocess.run(
            [*(command or COMMAND), *map(str, words)],
            cwd=self.folder, capture_output=True, text=True, timeout=WITHIN_S, check=False,
            env={
                **environment(),
                "KUBECONFIG": str(self.kubeconfig(who)),
                "FLOWMESH_SERVER": f"https://127.0.0.1:{self.fabric.port}",
                "FLOWMESH_CA": str(self.ca),
                **variables,
            },
        )  # fmt: skip

    def answer(self, who: str, *words: str | Path) -> Any:
        """Runs ``fmesh --json`` as a user; returns the document."""
        done = self.fmesh(who, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def kubeconfig(self, who: str) -> Path:
        """Returns the user's kubeconfig, whose context names the namespace."""
        return self.folder / f"{who}.kubeconfig"

    def openai(self, who: str, namespace: str) -> openai.OpenAI:
        """Returns OpenAI's client of a user, for a namespace."""
        return openai.OpenAI(
            base_url=f"https://127.0.0.1:{self.fabric.port}/openai/v1",
            api_key=self.server.token_of(who),
            project=namespace,
            max_retries=0,
            http_client=httpx.Client(verify=ssl.create_default_context(cafile=self.ca)),
        )

    def flow(self, name: str, **metadata: str) -> Path:
        """Writes a workflow with a local file as input."""
        (self.folder / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
        step = {
            "name": "sum", "uses": "data.sql", "inputs": {"t": "inputs.rows"},
            "with": {"query": f"select sum(n)::integer as {name} from t"},
        }  # fmt: skip
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": name, **metadata},
            "spec": {
                "inputs": {"rows": {"dataset": "./rows.jsonl"}},
                "steps": [step],
                "outputs": {"total": "sum.rows"},
            },
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        return file


@pytest.fixture(scope="module")
def cluster(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cli")
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    leaf.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    leaf.private_key_pem.write_to_path(folder / "tls.key")
    with replicas(api_server, folder) as fabric:
        tls = {
            "FLOWMESH_TLS_CERT": str(folder / "tls.crt"),
            "FLOWMESH_TLS_KEY": str(folder / "tls.key"),
        }
        fabric.operator("a", **tls)
        address = f"wss://127.0.0.1:{fabric.port}"
        fabric.worker("local-w", "--gateway", address, "--gateway-ca", str(folder / "ca.crt"))
        namespace = api_server.namespace()
        made = Cluster(api_server, fabric, folder / "ca.crt", folder, namespace)
        for who in ("ada", "ben"):
            config = yaml.safe_load(api_server.kubeconfig_of(who).read_text())
            config["contexts"][0]["context"]["namespace"] = namespace
            made.kubeconfig(who).write_text(yaml.safe_dump(config))
        grant(api_server, "ada", namespace, EDIT)
        grant(api_server, "ben", api_server.namespace(), LOOK)
        until(lambda: fabric.leads("a"), "a leads", 60)
        yield made


def test_run_uploads_creates_an_object_and_follows_it(cluster: Cluster, tmp_path: Path) -> None:
    (run,) = cluster.answer("ada", "run", cluster.flow("first"))["runs"]
    assert (run["phase"], run["namespace"]) == ("Succeeded", cluster.namespace)
    made = cluster.server.get("fmw", "first", "-n", cluster.namespace)
    assert made["metadata"]["uid"] == run["uid"]
    assert made["spec"]["inputs"]["rows"]["dataset"].startswith("cas:")
    assert "ada" not in json.dumps(made["spec"])
    done = cluster.fmesh("ada", "outputs", "first", "--download", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "total.jsonl").read_text()) == {"first": 3}
    for words in (
        ("status",), ("watch", "first"), ("receipt", "first"), ("why", "sum"), ("explain", "sum"),
        ("logs", "first"), ("lineage", "first/total"), ("engines", "data.sql"),
        ("plan", cluster.flow("first")), ("status", "--all"), ("export", "openlineage", "first"),
    ):  # fmt: skip
        asked = cluster.fmesh("ada", *words)
        assert asked.returncode == 0, (words, asked.stderr)


def test_submitting_again_creates_another_object_once_the_first_has_ended(cluster: Cluster) -> None:
    flow = cluster.flow("again")
    (first,) = cluster.answer("ada", "run", flow)["runs"]
    (second,) = cluster.answer("ada", "submit", flow)
    assert second["uid"] != first["uid"]
    assert second["name"].startswith("again-")


def test_a_batch_of_openais_requests_is_a_run_without_an_object(cluster: Cluster) -> None:
    body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Hello"}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    with cluster.openai("ada", cluster.namespace) as client:
        file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        until(lambda: client.batches.retrieve(batch.id).status == "in_progress", "it is a run")
        run = batch.id.replace("_", "-")
        assert cluster.fmesh("ada", "status", run).returncode == 0
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        until(lambda: client.batches.retrieve(batch.id).status == "cancelled", "it has ended")
        done = client.batches.retrieve(batch.id)
        assert done.error_file_id is not None
        assert "batch_cancelled" in client.files.content(done.error_file_id).text
    names = cluster.server.get("fmw", "-n", cluster.namespace)["items"]
    assert run not in [obj["metadata"]["name"] for obj in names]
    with cluster.openai("ben", cluster.namespace) as client, pytest.raises(openai.APIStatusError):
        client.batches.retrieve(batch.id)


def test_another_user_cannot_see_the_run(cluster: Cluster) -> None:
    (run,) = cluster.answer("ada", "run", cluster.flow("hidden"))["runs"]
    assert cluster.fmesh("ben", "status", run["uid"]).returncode == 5
    assert cluster.answer("ben", "status", "--all", "-A")["runs"] == []
    refused = cluster.fmesh("ben", "submit", cluster.flow("foreign"))
    assert refused.returncode != 0
    assert "user 'ben' may not create flowmeshworkflows" in refused.stderr
    assert "kubectl auth can-i create" in refused.stderr
    denied = cluster.fmesh("ada", "workers")
    assert denied.returncode == 4
    assert "may not list flowmeshworkerpools" in denied.stderr


def test_amending_changes_the_object_and_cancelling_ends_the_run(cluster: Cluster) -> None:
    flow = yaml.safe_load(cluster.flow("amended").read_text())
    flow["spec"]["suspend"] = True
    file = cluster.folder / "amended.yaml"
    file.write_text(yaml.safe_dump(flow))
    (run,) = cluster.answer("ada", "submit", file)
    done = cluster.fmesh("ada", "amend", run["uid"], "--priority", "7")
    assert done.returncode == 0, done.stderr
    made = cluster.server.get("fmw", "amended", "-n", cluster.namespace)
    assert made["spec"]["priority"] == 7
    assert cluster.answer("ada", "cancel", run["uid"])["phase"] == "Cancelled"


def test_errors_are_reported_with_their_location_before_any_object_is_created(
    cluster: Cluster,
) -> None:
    file = cluster.flow("wrong")
    flow = yaml.safe_load(file.read_text())
    score = {"uses": "eval.exact-match", "inputs": {"rows": "inputs.rows"}}
    score["with"] = {"prediction": "n", "target": "missing"}
    flow["spec"] = {**flow["spec"], "steps": [{"name": "score", **score}], "outputs": {}}
    file.write_text(json.dumps(flow))
    done = cluster.fmesh("ada", "submit", file)  # what columns there are, only the upload tells
    assert done.returncode == 2
    assert f"{file}:" in done.stderr
    assert "'missing'" in done.stderr
    listed = cluster.server.kubectl("get", "fmw", "wrong", "-n", cluster.namespace, ok=False)
    assert "not found" in listed.stderr


def test_kubectl_fmesh_is_the_same_command_and_passes_its_arguments_on(cluster: Cluster) -> None:
    code = "from flowmesh_cli.kubectl import main; main()"
    plugin = (sys.executable, "-c", code)
    done = cluster.fmesh("ada", "status", "--all", "--json", command=plugin, FLOWMESH_SERVER="")
    # without --server it asks the API server for the leader's pod, which ada may not list
    assert done.returncode == 4
    assert "pods is forbidden" in json.loads(done.stdout)["error"]["message"]
    shown = cluster.fmesh("ada", "--help", command=plugin)
    assert "kubectl fmesh" in shown.stdout


def test_refusals_name_the_location_and_the_remedy(cluster: Cluster) -> None:
    def said(**variables: str) -> str:
        done = cluster.fmesh("ada", "status", **variables)
        assert done.returncode in (2, 3), done.stdout
        return done.stderr

    plain = said(FLOWMESH_SERVER="http://flowmesh.example.com:8470")
    assert "would send your token over the network unencrypted" in plain
    unknown = said(FLOWMESH_CONTEXT="nowhere")
    assert "no context 'nowhere', but e2e" in unknown
    untrusted = said(FLOWMESH_CA="")
    assert "certificate verify failed" in untrusted
    assert "--ca" in untrusted
    nobody = said(FLOWMESH_TOKEN="nobody's")
    assert "bearer token is missing, wrong, or has expired" in nobody
    config = yaml.safe_load(cluster.kubeconfig("ada").read_text())
    config["users"][0]["user"] = {
        "client-certificate": str(cluster.folder / "tls.crt"),
        "client-key": str(cluster.folder / "tls.key"),
    }
    file = cluster.folder / "certificate.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    certificate = said(KUBECONFIG=str(file))
    assert "signs in with a client certificate" in certificate
    assert "kubectl create token" in certificate


def test_the_token_may_come_from_a_plugin(cluster: Cluster) -> None:
    token = cluster.server.token_of("ada")
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    config = yaml.safe_load(cluster.kubeconfig("ada").read_text())
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "echo",
            "args": [json.dumps(answer)],
            "interactiveMode": "Never",
        }
    }
    file = cluster.folder / "plugin.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    done = cluster.fmesh("ada", "status", "--all", KUBECONFIG=str(file))
    assert done.returncode == 0, done.stderr


def test_without_the_package_the_remedy_names_it(cluster: Cluster) -> None:
    code = (
        "import sys; sys.modules['kubernetes'] = None; from flowmesh_cli.main import main; main()"
    )
    done = cluster.fmesh("ada", "status", command=(sys.executable, "-c", code))
    assert done.returncode == 2
    assert "pip install" in done.stderr
    assert "[cluster]'" in done.stderr


def test_a_server_and_a_token_need_neither_a_kubeconfig_nor_the_package(
    cluster: Cluster, tmp_path: Path
) -> None:
    (run,) = cluster.answer("ada", "run", cluster.flow("seen"))["runs"]
    code = "import sys, importlib.util as u; f = u.find_spec; sys.modules['kubernetes'] = None;"
    code += "u.find_spec = lambda name, *a: None if name == 'kubernetes' else f(name, *a);"
    code += "from flowmesh_cli.main import main; main()"
    alone = {"KUBECONFIG": "", "HOME": str(tmp_path)}
    alone |= {"FLOWMESH_TOKEN": cluster.server.token_of("ada")}
    base = (sys.executable, "-c", code)
    own = ("-n", cluster.namespace)
    done = cluster.fmesh("ada", "status", run["uid"], *own, command=base, **alone)
    assert done.returncode == 0, done.stderr
    assert "Succeeded" in done.stdout
    refused = cluster.fmesh("ada", "submit", cluster.flow("seen"), *own, command=base, **alone)
    assert refused.returncode == 2  # an object is created at the API server
    assert "[cluster]'" in refused.stderr


def test_an_unreachable_gateway_is_reported_with_where_to_look(cluster: Cluster) -> None:
    done = cluster.fmesh("ada", "status", FLOWMESH_SERVER="https://127.0.0.1:1")
    assert done.returncode == 3
    assert "kubectl get pods" in done.stderr
