"""Runs that an older release took in: they hold references without a kind, and go on."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.flowmesh_control.fabric import Fabric, control_plane, workflow
from tests.flowmesh_control.runs.test_repin import catalog

from flowmesh_control.records.keys import final_key, pins_key, spec_key
from flowmesh_store.durability import Durability
from flowmesh_store.store import open_store

ROWS = b'{"n": 1}\n{"n": 2}\n'
OLDER = re.compile(rb"cas:[a-z]+:([0-9a-f]{64})\.[0-9a-f]{2}([0-9a-f]{32})")


@asynccontextmanager
async def serving(root: Path, version: int = 1) -> AsyncIterator[Fabric]:
    control = control_plane(root)
    control._catalog = catalog(version)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(root, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await control.stop()


def document(reference: str) -> dict[str, Any]:
    """Three inputs: of the document, of a file, and of what is in the store already."""
    inputs = {"rows": {"rows": [{"n": 3}]}, "file": {"dataset": "./n.jsonl"}}
    query = "select sum(n) as total from (select * from {} union all select * from {})"
    sums = [("one", "rows", "file"), ("two", "file", "named")]
    steps = [
        {
            "name": name,
            "uses": "data.sql",
            "inputs": {a: f"inputs.{a}", b: f"inputs.{b}"},
            "with": {"query": query.format(a, b)},
        }
        for name, a, b in sums
    ]
    spec = {
        "inputs": {**inputs, "named": {"dataset": reference}},
        "steps": [*steps, {"name": "noop", "uses": "test.noop"}],
        "outputs": {"one": "one.rows", "two": "two.rows", "given": "inputs.file"},
    }
    return workflow("older", spec)


async def uploaded(fabric: Fabric, rows: bytes = ROWS) -> str:
    path = "/v1/datasets?namespace=team-a&name=n.jsonl"
    return str((await fabric.call("POST", path, data=rows, status=201))["reference"])


async def submitted(root: Path) -> tuple[str, dict[str, Any]]:
    """A run that waits for a worker, and what was submitted."""
    async with serving(root) as fabric:
        reference = await uploaded(fabric)
        body = {
            "document": document(await uploaded(fabric, b'{"n": 40}\n')),
            "uploads": {"file": reference},
        }
        accepted = await fabric.call("POST", "/v1/runs", body=body, status=201)
        return accepted["uid"], body


async def make_older(root: Path, key: str) -> None:
    """Writes a record as the last release did: references without a kind, another digest."""
    store = open_store(root / "store", durability=Durability.PROCESS)
    record = await store.records.read(key)
    assert record is not None
    data = OLDER.sub(rb"cas:\1.\2", record.data)
    data = re.sub(rb'"digest":"[0-9a-f]{64}","created_s"', b'"digest":"older","created_s"', data)
    assert data != record.data
    await store.records.write(key, data, if_match=record.etag)


async def split_pins(root: Path, uid: str) -> None:
    """Writes a run's pins as a record of their own, as the last release did."""
    store = open_store(root / "store", durability=Durability.PROCESS)
    record = await store.records.read(spec_key(uid))
    assert record is not None
    spec = json.loads(record.data)
    pins = spec.pop("pins")
    compact = partial(json.dumps, separators=(",", ":"))
    await store.records.write(pins_key(uid), compact(pins).encode())
    await store.records.write(spec_key(uid), compact(spec).encode(), if_match=record.etag)


async def older(root: Path) -> tuple[str, dict[str, Any]]:
    uid, body = await submitted(root)
    await split_pins(root, uid)
    for key in (spec_key(uid), pins_key(uid)):
        await make_older(root, key)
    return uid, body


async def test_an_unfinished_run_is_joined_by_the_same_files_under_their_new_references(
    tmp_path: Path,
) -> None:
    uid, body = await older(tmp_path)
    async with serving(tmp_path) as fabric:
        again = await fabric.call("POST", "/v1/runs", body=body)
        assert (again["uid"], again["resumed"]) == (uid, True)


async def test_an_older_reference_is_refused_with_the_way_to_a_new_one(tmp_path: Path) -> None:
    _, body = await submitted(tmp_path)
    async with serving(tmp_path) as fabric:
        named = body["document"]["spec"]["inputs"]["named"]["dataset"]
        before = OLDER.sub(rb"cas:\1.\2", named.encode()).decode()
        for given in (
            {"document": document(before), "uploads": body["uploads"]},
            {"document": body["document"], "uploads": {"file": before}},
        ):
            said = await fabric.call("POST", "/v1/runs", body=given, status=422)
            [problem] = said["error"]["problems"]
            assert problem["path"].startswith("spec.inputs.")
            assert problem["message"].endswith(
                "was made by an older release; take a new one from `fmesh outputs`, or upload again"
            )
        path = f"/v1/content?reference={before}&namespace=team-a"
        said = await fabric.call("GET", path, status=403)
        assert "upload again" in said["error"]["remedy"]
        said = await fabric.call("GET", f"/v1/lineage/{before}", status=403)
        assert "upload again" in said["error"]["remedy"]


async def test_a_run_is_re_pinned_though_its_references_are_older(tmp_path: Path) -> None:
    uid, _ = await older(tmp_path)
    async with serving(tmp_path, version=2) as fabric:
        found = await fabric.call("POST", f"/v1/runs/{uid}/repin")
        assert found["versions"] == {"test.noop": "1.1 -> 2.1"}


@pytest.mark.slow
async def test_an_older_run_ends_and_its_outputs_have_references_that_can_be_used(
    tmp_path: Path,
) -> None:
    uid, _ = await older(tmp_path)
    async with serving(tmp_path) as fabric:
        fabric.worker("w1")
        ended = await fabric.ended(uid)
        assert ended.phase == "Succeeded", ended
    await make_older(tmp_path, final_key(uid))
    async with serving(tmp_path) as fabric:
        outputs = (await fabric.call("GET", f"/v1/runs/{uid}"))["outputs"]
        assert outputs == ended.outputs
        assert await fabric.call("GET", f"/v1/runs/{uid}/outputs") == outputs
        totals = [
            await fabric.call("GET", f"/v1/content?reference={o['reference']}&namespace=team-a")
            for o in outputs.values()
        ]
        assert totals == [b'{"total":6}\n', b'{"total":43}\n', b'{"n":1}\n{"n":2}\n']
