"""The API client against a server with scripted answers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.kube import client as module
from flowmesh_operator.kube.client import ApiError, KubeClient
from flowmesh_operator.kube.kinds import WORKFLOWS


class Scripted:
    """Gives one answer after the other: status, body, headers."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[web.Request] = []

    def then(self, status: int, body: Any = None, **headers: str) -> None:
        self.answers.append((status, body or {}, headers))

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        status, body, headers = self.answers.pop(0)
        return web.json_response(body, status=status, headers=headers)


@pytest.fixture
def server() -> Scripted:
    return Scripted()


@pytest.fixture
async def api(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeClient]:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.001)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    client = ApiClient(configuration=Configuration(host=f"http://{host}:{port}", retries=None))
    yield KubeClient(client)
    await client.close()
    await runner.cleanup()


async def test_temporary_failures_are_retried_and_each_try_is_counted(
    server: Scripted, api: KubeClient
) -> None:
    server.then(429, **{"Retry-After": "1"})
    server.then(503)
    server.then(200, {"metadata": {"name": "a"}})
    found = await api.get(*WORKFLOWS, "n", "a")
    assert found["metadata"]["name"] == "a"
    assert api.requests == {("get", "flowmeshworkflows"): 3}
    assert server.asked[0].path == ("/apis/flowmesh.dev/v1alpha1/namespaces/n/flowmeshworkflows/a")


async def test_tries_are_bounded_and_a_refusal_is_not_retried(
    server: Scripted, api: KubeClient
) -> None:
    for _ in range(module.TRIES):
        server.then(500, {"message": "etcd is away"})
    with pytest.raises(ApiError, match="etcd is away"):
        await api.get(*WORKFLOWS, "n", "a")
    server.then(403, {"message": "no right"})
    with pytest.raises(ApiError) as refused:
        await api.delete(*WORKFLOWS, "n", "a")
    assert (refused.value.status, len(server.asked)) == (403, module.TRIES + 1)


async def test_a_list_whose_pages_have_expired_restarts(server: Scripted, api: KubeClient) -> None:
    first = {"items": [{"metadata": {"uid": "old"}}], "metadata": {"continue": "c1"}}
    again = {"items": [{"metadata": {"uid": "a"}}], "metadata": {"continue": "c2"}}
    server.then(200, first)
    server.then(410, {"message": "expired"})
    server.then(200, again)
    server.then(200, {"items": [{"metadata": {"uid": "b"}}], "metadata": {}})
    found = await api.list(*WORKFLOWS)
    assert [o["metadata"]["uid"] for o in found] == ["a", "b"]
    assert [r.query.get("continue", "") for r in server.asked] == ["", "c1", "", "c2"]


async def test_a_fence_is_checked_before_each_try_of_a_write_and_never_for_reads(
    server: Scripted, api: KubeClient
) -> None:
    class StoppedError(FlowMeshError):
        pass

    holds = [True]

    def fence() -> None:
        if not holds.pop():
            raise StoppedError("not the leader")

    fenced = api.fenced(fence)
    server.then(200)
    await fenced.get(*WORKFLOWS, "n", "a")
    holds[:] = [False, True]
    server.then(503)
    with pytest.raises(StoppedError):
        await fenced.patch_status(*WORKFLOWS, "n", "a", {"status": {}})
    assert [r.method for r in server.asked] == ["GET", "PATCH"]


async def test_an_apply_names_the_field_manager(server: Scripted, api: KubeClient) -> None:
    server.then(200)
    await api.apply("", "v1", "pods", "n", {"metadata": {"name": "p"}})
    (asked,) = server.asked
    assert asked.query == {"fieldManager": "flowmesh", "force": "true"}
    assert asked.content_type == "application/apply-patch+yaml"
