"""Services from ``kubectl apply`` to an answer: real API server, operator, worker and router."""

import datetime
import json
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from socket import socket
from typing import Any

import httpx
import openai
import pytest
from tests.flowmesh_operator.api_server import ApiServer, until
from tests.flowmesh_operator.pool_builder import pool_object
from tests.flowmesh_operator.replicas import Replicas, replicas
from tests.flowmesh_operator.user_roles import grant_everywhere

from flowmesh_api.v1.services import ServiceTokenCreated
from flowmesh_operator.access.gateway_certificate import gateway_certificate

pytestmark = pytest.mark.slow
ECHO = {"echo": {"uses": "test.echo", "inputs": {}}}


def free_port() -> int:
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """The operator's namespace, a router, and services of a namespace of a tenant."""

    made: Replicas
    team: str
    hubs_port: int
    port: int

    def apply(self, name: str, components: dict[str, Any] = ECHO, **spec: Any) -> None:
        document = {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshService",
            "metadata": {"name": name, "namespace": self.team},
            "spec": {"inputs": {}, "components": components, **spec},
        }
        self.made.server.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(document))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.made.server.get("fms", name, "-n", self.team)
        return found.get("status") or {}

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        listed = self.status(name).get("conditions") or []
        return next((c for c in listed if c["type"] == kind), {})

    def wait(self, name: str, what: str = "condition=Ready") -> None:
        words = ("wait", f"--for={what}", f"fms/{name}", "-n", self.team, "--timeout=60s")
        done = self.made.server.kubectl(*words, ok=False)
        assert not done.returncode, f"{done.stderr}: {self.status(name)}"

    def ask(self, method: str, path: str, body: Any = None, who: str = "admin") -> tuple[int, Any]:
        """Sends a request to the gateway; returns status and document."""
        data = None if body is None else json.dumps(body).encode()
        token = self.made.server.token_of(who)
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.made.port}{path}", data, method=method,
            headers={"Authorization": f"Bearer {token}"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())

    def token(self, name: str) -> ServiceTokenCreated:
        path = f"/v1/services/{name}/tokens?namespace={self.team}"
        status, found = self.ask("POST", path, {"valid_s": 60.0})
        assert status == 200, found
        return ServiceTokenCreated(**found)

    def client(self, token: str) -> openai.OpenAI:
        trust = ssl.create_default_context(cafile=self.made.root / "ca.crt")
        url = f"https://localhost:{self.port}/v1"
        http = httpx.Client(verify=trust)
        return openai.OpenAI(base_url=url, api_key=token, max_retries=0, http_client=http)

    def says(self, token: str, model: str, text: str) -> str:
        with self.client(token) as client:
            messages: Any = [{"role": "user", "content": text}]
            answer = client.chat.completions.create(model=model, messages=messages)
            return str(answer.choices[0].message.content)

    def invoke(self, name: str, token: str, request: Any) -> tuple[int, Any]:
        """Sends a request to the stages of a service; returns status and document."""
        trust = ssl.create_default_context(cafile=self.made.root / "ca.crt")
        url = f"https://localhost:{self.port}/v1/services/{self.team}/{name}:invoke"
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(verify=trust, headers=headers, timeout=30) as client:
            answer = client.post(url, json=request)
            return answer.status_code, answer.json()

    def start_router(self) -> None:
        root = self.made.root
        words = ["flowmesh_serving.router", f"--port={self.port}", f"--hubs-port={self.hubs_port}"]
        words += [f"--tls-cert={root / 'tls.crt'}", f"--tls-key={root / 'tls.key'}"]
        words += [f"--control=http://127.0.0.1:{self.made.port}", f"--token={root / 'router'}"]
        self.made._start("router", words, {})


@pytest.fixture(scope="module")
def cluster(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with replicas(api_server, tmp_path_factory.mktemp("services")) as made:
        now = datetime.datetime.now(datetime.UTC)
        for name, content in gateway_certificate(["localhost"], 1, now).items():
            (made.root / name).write_bytes(content)
        grant_everywhere(api_server, "ben", "get,post", "--non-resource-url=/v1/router")
        (made.root / "router").write_text(api_server.token_of("ben"))
        found = Cluster(made, api_server.namespace(), free_port(), free_port())
        made.operator(
            "a",
            FLOWMESH_ROUTER_HUBS=f"tls:localhost:{found.hubs_port}",
            FLOWMESH_ROUTER_CA=str(made.root / "ca.crt"),
            FLOWMESH_ROUTER_URL=f"https://localhost:{found.port}/v1",
        )
        until(lambda: made.leads("a"), "a leads")
        found.start_router()
        yield found


def test_an_applied_service_becomes_ready_and_answers_with_a_token(cluster: Cluster) -> None:
    cluster.apply("ask", openai={"model": "echo"})
    until(lambda: cluster.condition("ask", "Accepted").get("status") == "True", "accepted")
    missing = "ReplicasMissing"
    until(lambda: cluster.condition("ask", "Ready").get("reason") == missing, "it needs a worker")
    assert cluster.condition("ask", "Ready")["status"] == "False"
    assert cluster.status("ask")["ready"] == "0/1"
    cluster.made.worker("local-w1")
    cluster.wait("ask")
    status = cluster.status("ask")
    assert status["phase"] == "Ready"
    assert status["endpoint"] == f"https://localhost:{cluster.port}/v1"
    assert (status["model"], status["ready"], status["observedGeneration"]) == ("echo", "1/1", 1)
    token = cluster.token("ask").token
    until(lambda: answered(cluster, token), "the router answers")
    operator = cluster.made.processes["a"]
    operator.send_signal(signal.SIGSTOP)  # the router goes on with what it knows
    try:
        assert cluster.says(token, "echo", "once more") == "once more"
    finally:
        operator.send_signal(signal.SIGCONT)


def answered(cluster: Cluster, token: str) -> bool:
    try:
        return cluster.says(token, "echo", "one two") == "one two"
    except (openai.APIStatusError, openai.APIConnectionError):
        return False


def test_a_revoked_token_is_refused(cluster: Cluster) -> None:
    cluster.apply("ask", openai={"model": "echo"})
    made = cluster.token("ask")
    until(lambda: answered(cluster, made.token), "the router answers")
    path = f"/v1/services/ask/tokens/{made.id}?namespace={cluster.team}"
    assert cluster.ask("DELETE", path)[0] == 200
    until(lambda: not answered(cluster, made.token), "the router refuses it")
    with pytest.raises(openai.AuthenticationError):
        cluster.says(made.token, "echo", "one")


def test_a_token_of_kubernetes_calls_services_where_its_user_has_the_right(
    cluster: Cluster,
) -> None:
    server, team = cluster.made.server, cluster.team
    cluster.apply("ask", openai={"model": "echo"})
    cluster.wait("ask")
    for name in ("ci", "other"):
        server.kubectl("create", "serviceaccount", name, "-n", team)
    words = ("--verb=call", "--resource=flowmeshservices.flowmesh.dev", "-n", team)
    server.kubectl("create", "role", "caller", *words)
    account = f"--serviceaccount={team}:ci"
    server.kubectl("create", "rolebinding", "caller", "--role=caller", account, "-n", team)

    def token(name: str, *more: str) -> str:
        return server.kubectl("create", "token", name, "-n", team, *more).stdout.strip()

    own = token("ci")
    until(lambda: answered(cluster, own), "its user has the right")
    assert answered(cluster, token("ci", "--audience=flowmesh"))
    with pytest.raises(openai.AuthenticationError):
        cluster.says(token("ci", "--audience=another"), "echo", "one")
    with pytest.raises(openai.PermissionDeniedError, match="may not call flowmeshservices"):
        cluster.says(token("other"), "echo", "one")
    operator = cluster.made.processes["a"]
    operator.send_signal(signal.SIGSTOP)  # the router goes on with what it knows
    try:
        assert cluster.says(own, "echo", "once more") == "once more"
    finally:
        operator.send_signal(signal.SIGCONT)


def test_a_wrong_spec_is_named_and_the_older_one_stays_served(cluster: Cluster) -> None:
    cluster.apply("ask", openai={"model": "echo"})
    cluster.wait("ask")
    cluster.apply("ask", {"echo": {"uses": "test.ecko", "inputs": {}}}, openai={"model": "echo"})
    until(lambda: cluster.condition("ask", "Accepted").get("status") == "False", "not accepted")
    accepted = cluster.condition("ask", "Accepted")
    assert accepted["reason"] == "Invalid"
    assert "spec.components.echo.uses" in accepted["message"]
    assert "test.echo" in accepted["message"]
    assert cluster.condition("ask", "Ready")["status"] == "True"
    stages = [{"name": "said", "component": "ecko"}]
    cluster.apply("ask", openai={"model": "echo"}, stages=stages)
    until(
        lambda: "spec.stages[0].component" in cluster.condition("ask", "Accepted")["message"],
        "a stage of no component is named",
    )
    cluster.apply("ask", openai={"model": "echo"})
    cluster.wait("ask", "condition=Accepted")


CODE = """
def double(batch):
    return [{"text": call["text"] * 2} for call in batch]
"""
STAGED: dict[str, Any] = {
    "components": {**ECHO, "double": {"python": {"code": CODE, "function": "double"}}},
    "stages": [
        {"name": "twice", "component": "double", "inputs": {"text": "request.text"}},
        {
            "name": "said",
            "component": "echo",
            "with": {"messages": [{"role": "user", "content": "{{ twice.text }}!"}]},
        },
    ],
    "reply": {"said": "said.completion"},
    "limits": {"maxRequestBytes": "1Ki"},
}


def test_stages_of_code_and_of_an_engine_answer_one_request(cluster: Cluster) -> None:
    cluster.made.worker("local-code", "--allow-user-code")
    cluster.apply("staged", **STAGED)
    cluster.wait("staged")
    assert cluster.status("staged")["ready"] == "2/2"
    token = cluster.token("staged").token
    until(lambda: cluster.invoke("staged", token, {"text": "ab"})[0] == 200, "the router answers")
    assert cluster.invoke("staged", token, {"text": "ab"}) == (200, {"said": "abab!"})
    status, found = cluster.invoke("staged", token, {})
    assert (status, found["error"]["code"]) == (400, "missing_field")
    assert cluster.invoke("staged", token, {"text": "x" * 2000})[0] == 413
    assert cluster.invoke("staged", "fm-another", {"text": "ab"})[0] == 401
    changed = {**STAGED, "reply": {"said": "said.completion", "twice": "twice.text"}}
    cluster.apply("staged", **changed)
    until(
        lambda: cluster.invoke("staged", token, {"text": "a"})[1] == {"said": "aa!", "twice": "aa"},
        "another reply, with the same replicas",
    )
    cluster.made.server.kubectl("delete", "fms", "staged", "-n", cluster.team)
    cluster.made.end("local-code")


def test_services_are_changed_as_objects_only(cluster: Cluster) -> None:
    path = f"/v1/services/ask?namespace={cluster.team}"
    status, found = cluster.ask("DELETE", path)
    assert status == 409
    assert "FlowMeshService objects" in found["error"]["message"]


def test_a_pool_grows_from_zero_for_a_service_that_fits_on_no_worker(cluster: Cluster) -> None:
    spec = {"engines": {"flavor": "thin"}, "resources": {"cpu": 1, "memory": "4Gi"}}
    scaling = {"maxReplicas": 2, "autoscaling": {"scaleDownAfter": "2s"}}
    given = pool_object({**spec, **scaling}, "grow", cluster.made.own)
    given["metadata"].pop("uid")
    server, at = cluster.made.server, ("-n", cluster.made.own)
    server.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(given))

    def size() -> int:
        found = server.kubectl("get", "deployment", "flowmesh-pool-grow", *at, "-ojson", ok=False)
        return int(json.loads(found.stdout)["spec"]["replicas"]) if found.stdout else -1

    until(lambda: size() == 0, "a pool without workers")
    cluster.apply("large", {"echo": {**ECHO["echo"], "resources": {"memory": "3Gi"}}})
    until(lambda: size() == 1, "a worker for the replica")
    (decision,) = server.get("fmwp", "grow", *at)["status"]["decisions"]
    assert decision["reason"] == "replicas of services need 1 workers"
    server.kubectl("delete", "fms", "large", "-n", cluster.team)
    until(lambda: size() == 0, "none without it")
    server.kubectl("delete", "fmwp", "grow", *at)


def test_a_deleted_object_ends_its_service(cluster: Cluster) -> None:
    cluster.apply("gone", openai={"model": "gone"})
    cluster.wait("gone")
    path = f"/v1/services/gone?namespace={cluster.team}"
    assert cluster.ask("GET", path)[0] == 200
    cluster.made.server.kubectl("delete", "fms", "gone", "-n", cluster.team)
    until(lambda: cluster.ask("GET", path)[0] == 404, "the service is gone")
