"""Reports of a router with real requests, real hosts and a real control plane or file."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import API_TOKEN, Fabric, control_plane
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.stage_stack import SERVICE, StageStack, python, stage_stack

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.router_reports import RouterReport
from flowmesh_serving.control_client import ControlClient
from flowmesh_serving.router.reports import ReportFile, RouterReports

CODE = "def same(calls):\n    return [{'text': call['text']} for call in calls]\n"
SPEC: dict[str, Any] = {
    "components": {"one": python(CODE, "same")},
    "stages": [{"name": "copy", "component": "one", "inputs": {"text": "request.text"}}],
    "reply": {"text": "copy.text"},
}


@contextlib.asynccontextmanager
async def control(folder: Path) -> AsyncIterator[Fabric]:
    """Yields a control plane that has the service, without workers."""
    token = folder / "token"
    token.write_text(API_TOKEN)
    found = control_plane(folder)
    await found.start()
    async with ClientSession() as http:
        fabric = Fabric(folder, found, http)
        metadata = {"name": "ask", "namespace": "team-a"}
        head = {"apiVersion": "flowmesh.dev/v1alpha1", "kind": "FlowMeshService"}
        spec = {**SPEC, "slo": {"latency": "20s", "missRate": 0.5}}
        document = {**head, "metadata": metadata, "spec": spec}
        await fabric.call("POST", "/v1/services", body={"document": document})
        async with asyncio.timeout(30):  # without a release a service has no target
            while True:
                shown = await fabric.call("GET", "/v1/services/ask?namespace=team-a")
                if shown.get("release"):
                    break
        yield fabric
    await found.stop()


async def answered(stack: StageStack, count: int) -> RouterReports:
    """Sends requests; returns the reports of the router once it knows the profile."""
    for status, _ in await asyncio.gather(*(stack.ask({"text": "a"}) for _ in range(count))):
        assert status == 200
    router = stack.stack.router
    await until(lambda: any(r.load.sizes for r in router._replicas.of(SERVICE).values()))
    return RouterReports(router._metrics, router._replicas, ReportFile(stack.stack.folder / "r"))


@pytest.mark.slow
async def test_the_control_plane_shows_what_a_router_has_counted(tmp_path: Path) -> None:
    async with (
        control(tmp_path) as fabric,
        stage_stack(tmp_path / "stack", SPEC, {"w0": ["one"]}, slo_s=20.0) as stack,
    ):
        reports = await answered(stack, 24)
        client = ControlClient(fabric.control.url, tmp_path / "token", None)
        report = reports.report()
        (service,) = report.services
        assert (service.came, service.ended, service.missed) == (24, 24, 0)
        assert service.replicas[0].sizes[0] == 1
        for _ in range(2):  # one that comes twice counts once
            await client.send(report)
        shown = await fabric.call("GET", "/v1/services/ask?namespace=team-a")
        assert shown["requests"]["ended"] == 24
        assert 0 < shown["requests"]["p50_s"] <= shown["requests"]["p99_s"] < 20
        (condition,) = [c for c in shown["conditions"] if c["type"] == "MeetsSlo"]
        assert (condition["status"], condition["reason"]) == ("True", "RepliesInTime")
        loads = fabric.control.services.replica_planner.loads
        assert not loads._profiles, "this control plane has placed no replica"

        wrong = tmp_path / "wrong"
        wrong.write_text("another-token")
        refused = ControlClient(fabric.control.url, wrong, None)
        with pytest.raises(FlowMeshError, match="status 401"):
            await refused.send(report)


async def test_a_report_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "reports.json"
    for age_s in (1.0, 2.0):
        await ReportFile(path).send(RouterReport("a", age_s))
        assert msgspec.json.decode(path.read_bytes(), type=RouterReport).age_s == age_s
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FlowMeshError, match="requests are served without it"):
        await ReportFile(tmp_path / "none" / "reports.json").send(RouterReport("a", 1.0))
