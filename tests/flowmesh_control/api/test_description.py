"""The table of operations is that of the routes, and the control plane serves its description."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.attacks.by_hand import noop, place

import flowmesh_control.api
from flowmesh_api.v1 import routes
from flowmesh_api.v1.operations import operations
from flowmesh_api.v1.version import API_VERSION, VERSION_HEADER
from flowmesh_control.api.authorization import Authorizer, NamespaceSource, Route
from flowmesh_core.protocol.caller_review import CallerReviewRequest
from flowmesh_core.protocol.router_reports import RouterReport

HANDLERS = Path(next(iter(flowmesh_control.api.__path__)))
DOCUMENT = Path(__file__).parents[3] / "docs" / "openapi.json"
OPERATIONS = operations().values()
SHOWN = [o for o in OPERATIONS if not o.excluded]
"""The query parameters and bodies of the others are not in the table."""


async def test_every_registered_route_is_an_operation_and_every_operation_is_registered() -> None:
    async with place() as there:
        runner = there.control._runner
        assert runner is not None
        registered = {
            f"{route.method} {route.resource.canonical}"
            for route in runner.app.router.routes()
            if route.method != "HEAD" and route.resource is not None
        }
    assert registered == {operation.name for operation in OPERATIONS}


async def test_a_route_that_reads_a_namespace_of_the_query_declares_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protected: list[Route] = []
    protect = Authorizer.protect

    def noted(self: Authorizer, route: Route) -> Any:
        protected.append(route)
        return protect(self, route)

    monkeypatch.setattr(Authorizer, "protect", noted)
    async with place():
        pass
    reading = [r.operation for r in protected if r.namespace_source is NamespaceSource.QUERY]
    assert reading
    for operation in reading:
        assert "namespace" in {parameter.name for parameter in operation.query}, operation.name
    assert {r.operation.name for r in protected if not r.operation.needs_token} == set()


def test_the_query_parameters_of_the_table_are_those_that_handlers_read() -> None:
    read = r'query\.get\(\s*"(\w+)"|query\["(\w+)"\]|flag\([^"]*"(\w+)"\)'
    found = {
        next(name for name in match if name)
        for path in HANDLERS.glob("*.py")
        if not path.name.startswith("openai")
        for match in re.findall(read, path.read_text())
    }
    assert found == {parameter.name for o in SHOWN for parameter in o.query}


def test_the_bodies_of_the_table_are_those_that_handlers_decode() -> None:
    decoded: list[Any] = []
    for module in pkgutil.iter_modules([str(HANDLERS)]):
        if not module.name.startswith(("openai", "responses", "authorization")):
            values = vars(importlib.import_module(f"flowmesh_control.api.{module.name}")).values()
            decoded += [v.type for v in values if isinstance(v, msgspec.json.Decoder)]
    bodies = [o.body for o in SHOWN if o.body not in (None, bytes)]
    routers = [RouterReport, CallerReviewRequest]
    assert {str(kind) for kind in decoded} == {str(kind) for kind in [*bodies, *routers]}


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_the_document_is_served_without_a_token(encoding: str) -> None:
    async with place() as there:
        url = there.control.url + routes.OPENAPI
        for _ in range(2):
            async with there.http.get(url, headers={"Accept-Encoding": encoding}) as response:
                assert response.status == 200
                assert response.headers.get("Content-Encoding", "identity") == encoding
                assert response.content_type == "application/json"
                served = msgspec.json.decode(await response.read())
    assert served == msgspec.json.decode(DOCUMENT.read_bytes())


async def test_every_answer_names_the_version_of_the_api() -> None:
    async with place() as there:
        await there.join("w")
        uid = await there.submit("watched", noop("watched"))
        headers = {"Authorization": "Bearer api-token"}
        answered = set()
        for path, given in (
            ("/healthz", {}),
            ("/v1/runs", {}),
            ("/v1/runs", headers),
            (f"/v1/runs/{uid}/watch", headers),
            ("/v1/nothing", headers),
        ):
            async with there.http.get(there.control.url + path, headers=given) as response:
                assert response.headers[VERSION_HEADER] == API_VERSION
                answered.add(response.status)
    assert answered == {200, 401, 404}
