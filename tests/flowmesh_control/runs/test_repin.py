"""Runs whose pinned versions are gone: they wait, and are re-pinned or cancelled, durably."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, machine_of, workflow

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import Param, ParamType
from flowmesh_core.catalog.plugins import load_catalog

NOOP = {"steps": [{"name": "a", "uses": "test.noop", "with": {"value": 1}}], "outputs": {}}

Start = Callable[[Catalog], Any]


def catalog(version: int) -> Catalog:
    """The built-in contracts, with ``test.noop`` in one version alone."""
    return Catalog(
        replace(c, version=version) if c.name == "test.noop" else c for c in load_catalog()
    )


@asynccontextmanager
async def serving(root: Path, contracts: Catalog) -> AsyncIterator[Fabric]:
    control = control_plane(root)
    control._catalog = contracts
    await control.start()
    async with ClientSession() as http:
        yield Fabric(root, control, http)
    await control.stop()


@pytest.fixture
async def uid(tmp_path: Path) -> str:
    """A run that was submitted when ``test.noop`` had version 1."""
    async with serving(tmp_path, catalog(1)) as fabric:
        return await fabric.submit(workflow("old", NOOP))


async def test_a_run_that_waits_for_an_engine_version_is_shown_with_steps_and_remedy(
    tmp_path: Path, uid: str
) -> None:
    async with serving(tmp_path, catalog(2)) as fabric:
        status = await fabric.call("GET", f"/v1/runs/{uid}")
        assert status["phase"] == "Suspended"
        assert "test.noop version 1.1, which is not installed" in status["message"]
        assert f"fmesh repin {uid}" in status["remedy"]
        assert [(s["path"], s["state"]) for s in status["steps"]] == [("a", "PENDING")]
        body = {"priority": 3}
        refused = await fabric.call("POST", f"/v1/runs/{uid}/amend", body=body, status=409)
        assert "fmesh repin" in refused["error"]["remedy"]


async def test_a_run_that_sets_an_added_parameter_waits_under_a_release_without_it(
    tmp_path: Path,
) -> None:
    fresh = Param("fresh", ParamType.INTEGER, 0, added=1)
    later = Catalog(
        replace(c, params=(*c.params, fresh), minor=1) if c.name == "test.noop" else c
        for c in load_catalog()
    )
    async with serving(tmp_path, later) as fabric:
        plain = await fabric.submit(workflow("plain", NOOP))
        step = {"name": "a", "uses": "test.noop", "with": {"value": 1, "fresh": 1}}
        setting = await fabric.submit(workflow("new", {"steps": [step], "outputs": {}}))
    async with serving(tmp_path, catalog(1)) as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{plain}"))["phase"] != "Suspended"
        status = await fabric.call("GET", f"/v1/runs/{setting}")
        assert status["phase"] == "Suspended"
        assert "sets what minor 1 of test.noop version 1 added" in status["message"]


async def test_a_repinned_run_continues_and_stays_repinned_after_a_restart(
    tmp_path: Path, uid: str
) -> None:
    async with serving(tmp_path, catalog(2)) as fabric:
        found = await fabric.call("POST", f"/v1/runs/{uid}/repin")
        assert found == {"uid": uid, "versions": {"test.noop": "1.1 -> 2.1"}}
        again = await fabric.call("POST", f"/v1/runs/{uid}/repin", status=409)
        assert "the newest versions already" in again["error"]["message"]
    async with serving(tmp_path, catalog(2)) as fabric:
        status = await fabric.call("GET", f"/v1/runs/{uid}")
        assert status["phase"] == "Running"
        (run,) = machine_of(fabric.control).state.runs.values()
        assert [step.contract for step in run.plan.steps] == [2]
        (resumed,) = [
            await fabric.call("POST", "/v1/runs", body={"document": workflow("old", NOOP)})
        ]
        assert resumed["resumed"] is True
    async with serving(tmp_path, catalog(3)) as fabric:
        status = await fabric.call("GET", f"/v1/runs/{uid}")
        assert "test.noop version 2.1" in status["message"]


async def test_a_run_that_waits_for_an_engine_version_can_be_cancelled_permanently(
    tmp_path: Path, uid: str
) -> None:
    async with serving(tmp_path, catalog(2)) as fabric:
        status = await fabric.call("POST", f"/v1/runs/{uid}/cancel", body={"reason": "enough"})
        assert (status["phase"], status["message"]) == ("Cancelled", "enough")
        shown = await fabric.call("GET", f"/v1/runs/{uid}")
        assert shown["ended_s"] > 0
        await fabric.call("POST", f"/v1/runs/{uid}/repin", status=409)
    async with serving(tmp_path, catalog(1)) as fabric:
        shown = await fabric.call("GET", f"/v1/runs/{uid}")
        assert (shown["phase"], shown["message"]) == ("Cancelled", "enough")
        assert machine_of(fabric.control).state.runs == {}


async def test_a_running_run_is_repinned_if_the_catalog_has_a_newer_version(
    tmp_path: Path, uid: str
) -> None:
    both = Catalog([*catalog(1), *catalog(2)])
    async with serving(tmp_path, both) as fabric:
        assert (await fabric.call("GET", f"/v1/runs/{uid}"))["phase"] == "Running"
        await fabric.call("POST", f"/v1/runs/{uid}/repin")
        (run,) = machine_of(fabric.control).state.runs.values()
        assert run.steps["a"].contract.version == 2
