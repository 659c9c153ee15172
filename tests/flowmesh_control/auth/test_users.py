"""Who sees what: every door of a real control plane, knocked at by users with different rights."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, workflow
from tests.flowmesh_control.rights import EDIT, VIEW, TableOfUsers

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.settings import ControlSettings

RIGHTS = {
    "root": {"*": EDIT},
    "ada": {"team-a": EDIT},
    "bob": {"team-b": EDIT, "team-a": VIEW},
    "eve": {"team-e": EDIT},
}
SPEC = {"steps": [{"name": "one", "uses": "test.noop"}]}
ROWS = b'{"n": 1}\n'


class MultiUserFabric(Fabric):
    """A fabric to which requests of several users are sent."""

    async def ask(self, who: str, method: str, path: str, *, status: int = 200, **more: Any) -> Any:
        self.token = f"{who}-token"
        return await self.call(method, path, status=status, **more)

    async def run(self, who: str, namespace: str, name: str = "flow") -> str:
        self.token = f"{who}-token"
        return await self.submit(workflow(name, SPEC, namespace))


async def _started(folder: Path, **more: Any) -> AsyncIterator[MultiUserFabric]:
    control = control_plane(folder, users=TableOfUsers(RIGHTS), **more)
    await control.start()
    async with ClientSession() as http:
        fabric = MultiUserFabric(folder, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await control.stop()


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[MultiUserFabric]:
    async for one in _started(tmp_path):
        yield one


@pytest.fixture
async def of_objects(tmp_path: Path) -> AsyncIterator[MultiUserFabric]:
    settings = ControlSettings(objects=True, metrics_open=True)
    async for one in _started(tmp_path, settings=settings):
        yield one


async def test_a_list_contains_only_the_runs_that_the_user_may_see(fabric: MultiUserFabric) -> None:
    a, b = await fabric.run("ada", "team-a"), await fabric.run("bob", "team-b")
    seen = {
        who: {r["uid"] for r in await fabric.ask(who, "GET", "/v1/runs")}
        for who in ("root", "ada", "bob", "eve")
    }
    assert seen == {"root": {a, b}, "ada": {a}, "bob": {a, b}, "eve": set()}
    assert await fabric.ask("eve", "GET", "/v1/runs?namespace=team-a") == []


async def test_a_run_name_resolves_to_the_latest_run_that_the_user_may_see(
    fabric: MultiUserFabric,
) -> None:
    a = await fabric.run("ada", "team-a", "nightly")
    b = await fabric.run("bob", "team-b", "nightly")
    assert (await fabric.ask("ada", "GET", "/v1/runs/nightly"))["uid"] == a
    assert (await fabric.ask("bob", "GET", "/v1/runs/nightly"))["uid"] == b
    later = await fabric.run("ada", "team-a", "weekly")
    await fabric.run("root", "team-e", "weekly")
    # bob sees team-a's and may not cancel it: no other run is cancelled in its place
    await fabric.ask("bob", "POST", "/v1/runs/weekly/cancel", status=403)
    assert (await fabric.ask("ada", "GET", f"/v1/runs/{later}"))["phase"] == "Running"


async def test_content_is_readable_only_by_users_of_its_namespace(fabric: MultiUserFabric) -> None:
    put = await fabric.ask("ada", "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=201)
    await fabric.ask("eve", "POST", "/v1/datasets?namespace=team-a", data=ROWS, status=403)
    path = f"/v1/content?reference={put['reference']}&namespace="
    assert await fabric.ask("bob", "GET", f"{path}team-a") == b'{"n":1}\n'
    await fabric.ask("eve", "GET", f"{path}team-a", status=403)
    refused = await fabric.ask("eve", "GET", f"{path}team-e", status=403)
    assert "reference" in refused["error"]["message"]  # it is of another scope


async def test_labels_that_a_user_submits_do_not_grant_access_to_a_group(tmp_path: Path) -> None:
    """Only the surroundings say what labels a namespace has."""
    async for fabric in _started(
        tmp_path, labels=lambda n: {"tier": "gold"} if n == "team-a" else {}
    ):
        gold = CachePolicy("gold", Sharing.GROUP, group="gold", labels={"tier": "gold"})
        await fabric.ask("root", "PUT", "/v1/policies", body=[gold])
        scopes = {}
        for who, namespace in (("ada", "team-a"), ("eve", "team-e")):
            body = {"document": workflow("w", SPEC, namespace)}
            scopes[who] = (await fabric.ask(who, "POST", "/v1/plan", body=body))["scopes"]
            await fabric.ask(
                who, "POST", "/v1/plan", body={**body, "labels": {"tier": "gold"}}, status=400
            )
        assert len(scopes["ada"]) == 2
        assert len(scopes["eve"]) == 1


async def test_requests_get_503_while_permissions_cannot_be_checked(
    fabric: MultiUserFabric,
) -> None:
    uid = await fabric.run("ada", "team-a")
    users = fabric.control._users
    assert isinstance(users, TableOfUsers)
    users.answers = False
    async with fabric.http.get(
        f"{fabric.control.url}/v1/runs/{uid}", headers={"Authorization": "Bearer ada-token"}
    ) as found:
        assert found.status == 503
        assert int(found.headers["Retry-After"]) >= 1


async def test_the_api_refuses_runs_and_policies_that_are_managed_as_kubernetes_objects(
    of_objects: MultiUserFabric,
) -> None:
    body = {"document": workflow("w", SPEC, "team-a")}
    said = await of_objects.ask("ada", "POST", "/v1/runs", body=body, status=409)
    assert "kubectl create -f" in said["error"]["remedy"]
    said = await of_objects.ask("root", "PUT", "/v1/policies", body=[], status=409)
    assert "kubectl apply -f" in said["error"]["remedy"]
    await of_objects.ask("ada", "POST", "/v1/plan", body=body)


async def test_metrics_are_public_if_the_settings_allow_it(of_objects: MultiUserFabric) -> None:
    async with of_objects.http.get(f"{of_objects.control.url}/metrics") as found:
        assert found.status == 200
        assert b"flowmesh_" in await found.read()
