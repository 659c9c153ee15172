"""Uploads over the API: where they may go."""

import asyncio
import io
import random
import tarfile
from pathlib import Path

import pytest
from tests.flowmesh_control.fabric import Fabric
from tests.flowmesh_control.test_importer import decoding_now
from tests.flowmesh_control.waiting import until

from flowmesh_control.importer.process import AT_ONCE, Importer
from flowmesh_control.runs.uploads import UploadStore


@pytest.mark.parametrize("namespace", ["Team A", "../x", "team_a", "*", "a" * 64])
async def test_an_invalid_namespace_is_refused(fabric: Fabric, namespace: str) -> None:
    for path in ("/v1/datasets?name=n.jsonl&", "/v1/trees?kind=model&"):
        reply = await fabric.call(
            "POST", f"{path}namespace={namespace}", data=b'{"a": 1}', status=400
        )
        assert "is not a namespace" in reply["error"]["message"]
        assert "small letters, digits and -" in reply["error"]["remedy"]


async def test_an_upload_to_a_valid_namespace_is_accepted(fabric: Fabric) -> None:
    query = "namespace=team-a&name=n.jsonl"
    found = await fabric.call("POST", f"/v1/datasets?{query}", data=b'{"a": 1}', status=201)
    assert found["rows"] == 1


async def test_decoding_an_upload_stops_when_its_client_disconnects_and_frees_its_place(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    source = random.Random(1)  # what it becomes does not fit into a pipe that nothing reads
    rows = [b'{"a": "%s"}\n' % source.randbytes(500).hex().encode() for _ in range(3000)]
    body = b"".join(rows)
    path = "/v1/datasets?namespace=team-a&name=n.jsonl"
    with monkeypatch.context() as hung:
        hung.setattr(Importer, "_receive", never)
        left = [
            asyncio.create_task(fabric.call("POST", path, data=io.BytesIO(body))) for _ in range(3)
        ]
        await until(lambda: len(decoding_now()) == AT_ONCE)
        for upload in left:
            upload.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await until(lambda: not decoding_now())
    found = await fabric.call("POST", path, data=io.BytesIO(body), status=201)
    assert found["rows"] == 3000


async def test_storing_a_directory_stops_when_its_client_disconnects_and_leaves_no_copy(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[Path] = []
    ended = asyncio.Event()

    async def never(_: UploadStore, kind: str, directory: Path, scope: str) -> None:
        under_way.append(directory)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        entry = tarfile.TarInfo("config.json")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"{}"))
    path = "/v1/trees?namespace=team-a&kind=model"
    with monkeypatch.context() as hung:
        hung.setattr(UploadStore, "put_directory", never)
        upload = asyncio.create_task(fabric.call("POST", path, data=body.getvalue()))
        await until(lambda: under_way)
        assert under_way[0].is_dir()
        upload.cancel()
        await until(ended.is_set, within_s=20)
        await until(lambda: not under_way[0].parent.exists())
    assert (await fabric.call("POST", path, data=body.getvalue(), status=201))["kind"] == "model"


@pytest.mark.parametrize("name", ["%00.parquet", "a%0Ab.jsonl", "%7F.csv"])
async def test_a_file_name_with_control_characters_is_refused(fabric: Fabric, name: str) -> None:
    path = f"/v1/datasets?namespace=team-a&name={name}"
    reply = await fabric.call("POST", path, data=b"PAR1", status=400)
    assert reply["error"]["where"] == "?name="
