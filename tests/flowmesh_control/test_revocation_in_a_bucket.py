"""Revocation on a real S3 server with a real worker: bucket, disk and API are searched."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession
from tests.attacks.by_hand import TOKENS, control_on
from tests.flowmesh_control import waiting
from tests.flowmesh_control.fabric import WORKER_TOKEN, Fabric, workflow
from tests.flowmesh_store import versitygw

from flowmesh_store.keys import is_digest
from flowmesh_store.store import open_store

pytestmark = pytest.mark.slow

PRIVATE = [{"n": n, "text": f"private words {n}"} for n in range(200)]
OTHER = [{"n": n, "text": f"other words {n}"} for n in range(200)]


def mapped(rows: list[dict[str, Any]], value: int) -> dict[str, Any]:
    summed = "select text, sum(n) as total from t group by text order by text"
    return {
        "inputs": {"rows": {"rows": rows}},
        "steps": [
            {
                "name": "map",
                "uses": "test.map",
                "with": {"value": value},
                "inputs": {"rows": "inputs.rows"},
            },
            {
                "name": "sum",
                "uses": "data.sql",
                "with": {"query": summed},
                "inputs": {"t": "map.rows"},
            },
        ],
        "outputs": {"mapped": "map.rows", "sums": "sum.rows", "count": "map.metrics"},
    }


def blobs_below(folder: Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and "cas" in path.parts)
    return {path.name for path in files if is_digest(path.name)}


def files_with(folder: Path, text: bytes) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if text in path.read_bytes()]


async def test_no_byte_of_a_revoked_data_set_is_in_the_bucket_on_the_worker_or_in_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = versitygw.binary()
    assert program is not None, "run `make bin/versitygw`"
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", versitygw.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", versitygw.SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setitem(TOKENS, "local", WORKER_TOKEN)
    with versitygw.running(program, tmp_path / "s3") as server:
        url, cache = server.url("fabric"), tmp_path / "cache"
        store = open_store(url, spool_dir=tmp_path)
        control = control_on(store)
        await control.start()
        async with ClientSession() as http:
            fabric = Fabric(tmp_path, control, http)
            try:
                fabric.worker("local-w", "--store", url, "--cache-dir", str(cache))
                await searched(fabric, server.directory, cache)
            finally:
                await asyncio.to_thread(fabric.close)
                await control.stop()
                store.close()


async def searched(fabric: Fabric, bucket: Path, cache: Path) -> None:
    async def run(name: str, spec: dict[str, Any]) -> str:
        uid = await fabric.submit(workflow(name, spec))
        assert (await fabric.ended(uid, within_s=100)).phase == "Succeeded"
        return uid

    unrelated = await run("other", mapped(OTHER, 1))
    blobs = blobs_below(bucket)
    lines = b"".join(orjson.dumps(row) + b"\n" for row in PRIVATE)
    path = "/v1/datasets?namespace=team-a"
    uploaded = await fabric.call("POST", path, data=lines, status=201)
    runs = [await run(f"m{n}", mapped(PRIVATE, n)) for n in range(3)]
    assert files_with(bucket, b"private words")
    assert blobs < blobs_below(bucket)
    made = blobs_below(bucket) - blobs
    assert made & blobs_below(cache)
    body = {"target": uploaded["reference"]}
    answer = await fabric.call("POST", "/v1/revoke?namespace=team-a", body=body)
    report = answer["report"]
    assert (report["found"]["runs"], report["workers_asked"]) == (3, ["local-w"])
    assert blobs_below(bucket) == blobs
    assert not files_with(bucket, b"private words")
    await waiting.until(lambda: not made & blobs_below(cache), within_s=60)
    assert not files_with(cache, b"private words")
    for uid in runs:
        for view in ("", "/outputs", "/logs", "/receipt", "/made", "/openlineage", "/trace"):
            shown = await fabric.call("GET", f"/v1/runs/{uid}{view}")
            assert b"private words" not in orjson.dumps(shown, default=bytes.decode)
        for name in ("mapped", "sums"):
            await fabric.call("GET", f"/v1/runs/{uid}/outputs/{name}", status=410)
        # Other work gave the same number of rows.
        assert await fabric.call("GET", f"/v1/runs/{uid}/outputs/count") == {"count": 200}
    rows = await fabric.call("GET", f"/v1/runs/{unrelated}/outputs/mapped")
    assert rows.count(b"other words") == len(OTHER)
