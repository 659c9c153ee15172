"""A program on a cluster: its runs are objects, created by Kubernetes' own client.

The API server here keeps objects and checks a token; a control plane accepts them, as the operator
does. A real API server and operator are those of ``tests/flowmesh_operator``.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from aiohttp import web
from tests.attacks.by_hand import Place, end_of, noop, place
from tests.flowmesh_control.fabric import API_TOKEN, workflow

import flowmesh_sdk as fm
from flowmesh_control.runs.admission import Submission
from flowmesh_control.settings import ControlSettings
from flowmesh_sdk import cluster_workflows

pytest.importorskip("kubernetes", reason="the extra [cluster]")

T = TypeVar("T")
OBJECTS = "/apis/flowmesh.dev/v1alpha1/namespaces/{namespace}/flowmeshworkflows"


@dataclass
class Cluster:
    """An API server of workflow objects, whose operator accepts them at once."""

    there: Place
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    refusal: str = ""

    async def create(self, request: web.Request) -> web.Response:
        found = await request.json()
        key = (request.match_info["namespace"], found["metadata"]["name"])
        if request.headers.get("Authorization") != f"Bearer {API_TOKEN}":
            return _failed(403, "Forbidden", "flowmeshworkflows is forbidden")
        if key in self.objects:
            return _failed(409, "AlreadyExists", f"{key[1]} already exists")
        found["metadata"]["uid"] = f"uid-{len(self.objects)}"
        self.objects[key] = found
        if self.refusal:
            accepted = {"type": "Accepted", "status": "False", "message": self.refusal}
            found["status"] = {"conditions": [accepted, {"type": "Failed", "status": "True"}]}
        else:
            submission = Submission(found, uid=found["metadata"]["uid"])
            await self.there.control.services.commands.submit(submission)
        return web.json_response(found, status=201)

    async def read(self, request: web.Request) -> web.Response:
        return web.json_response(
            self.objects[request.match_info["namespace"], request.match_info["name"]]
        )


def _failed(status: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message}
    return web.json_response(body, status=status)


@asynccontextmanager
async def cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, token: str = API_TOKEN
) -> AsyncIterator[Cluster]:
    async with place(settings=ControlSettings(objects=True)) as there:
        found = Cluster(there)
        app = web.Application()
        app.router.add_post(OBJECTS, found.create)
        app.router.add_get(f"{OBJECTS}/{{name}}", found.read)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
            ],
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        # Kubernetes' client reads the variable when it is imported.
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        monkeypatch.setenv("FLOWMESH_SERVER", there.control.url)
        monkeypatch.delenv("FLOWMESH_TOKEN", raising=False)
        try:
            yield found
        finally:
            await runner.cleanup()


async def on(ask: Callable[[fm.Client], T], **given: Any) -> T:
    """Asks in a thread, with a client of its own."""

    def asked() -> T:
        with fm.connect(cluster=True, **given) as client:
            return ask(client)

    return await asyncio.to_thread(asked)


def document(name: str = "flow", **inputs: Any) -> dict[str, Any]:
    found = workflow(name, {**noop(name), "outputs": {"made": "one.metrics"}})
    del found["metadata"]["namespace"]
    found["spec"]["inputs"] = inputs
    found["spec"]["outputs"] |= {name: f"inputs.{name}" for name in inputs}
    return found


async def test_a_run_is_an_object_of_the_user_s_namespace_that_is_followed_to_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')
    flow = fm.load(document(rows={"dataset": "./rows.jsonl"}))
    async with cluster(tmp_path, monkeypatch) as found:
        worker = await found.there.join("w")
        uid, same = await on(lambda c: (c.submit(flow).uid, c.submit(flow).uid))
        assert uid == same
        ((key, made),) = found.objects.items()
        assert key == ("team-a", "flow")
        assert made["spec"]["inputs"]["rows"]["dataset"].startswith("cas:dataset:")
        assert uid == made["metadata"]["uid"]

        (attempt,) = await worker.given()
        await worker.sync(ended=(end_of(attempt.attempt_id, attempt.action_id, 7),))
        result = await on(lambda c: c.get_run(uid).result())
        assert result["made"] == {"value": 7}
        assert isinstance(result["rows"], fm.Rows)

        # The object of the name has ended, so that the next run has one of its own.
        later = await on(lambda c: flow.run(client=c))
        assert later.uid != uid
        assert [name for _, name in found.objects][1].startswith("flow-")


async def test_what_the_operator_or_the_api_server_refuses_is_raised_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch) as found:
        found.refusal = "a limit of this cluster"
        with pytest.raises(fm.ApiError, match="a limit of this cluster") as refused:
            await on(lambda c: c.submit(fm.load(document())))
        assert (refused.value.status, refused.value.where) == (422, "flow")
        wrong = document()
        wrong["spec"]["steps"][0]["uses"] = "data.sqll"
        with pytest.raises(fm.InvalidWorkflowError, match="no engine"):
            await on(lambda c: c.submit(fm.load(wrong)))
        assert len(found.objects) == 1
    async with cluster(tmp_path, monkeypatch, token="another") as found:
        with pytest.raises(fm.ApiError, match="flowmeshworkflows is forbidden") as forbidden:
            await on(lambda c: c.submit(fm.load(document())), token=API_TOKEN)
        assert forbidden.value.status == 403


def test_a_program_in_a_pod_has_the_token_of_the_pod_s_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"token": "a.b.c", "namespace": "team-b", "ca.crt": "an authority"}
    for name, content in own.items():
        (tmp_path / name).write_text(content)
    files = "kubernetes.config.incluster_config.SERVICE"
    monkeypatch.setattr(f"{files}_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{files}_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(cluster_workflows, "_POD_NAMESPACE", tmp_path / "namespace")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    objects = cluster_workflows.ClusterWorkflows()
    assert (objects.token(), objects.namespace) == ("a.b.c", "team-b")


def test_a_cluster_needs_an_address_and_kubernetes_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOWMESH_SERVER", raising=False)
    with pytest.raises(fm.FlowMeshError, match="needs its address"):
        fm.connect(cluster=True)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(fm.FlowMeshError, match=r"pip install 'flowmesh-fabric-sdk\[cluster\]'"):
        fm.connect("https://flowmesh.example.com:8470", context="prod")
