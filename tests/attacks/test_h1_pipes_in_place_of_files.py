"""Attacker: T4, code that names outputs by path; T3, a worker on a shared directory; T5, a folder.
Action: places FIFOs, links, devices and sockets where a file is expected.
Must not happen: the reader waits, follows the link, or reads a device without an end.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.attacks.not_regular import PLACED, endless, fifo
from tests.attacks.one_fabric import fabric_at
from tests.blob_views import blobs_of, token_of
from tests.flowmesh_control.fabric import workflow

from flowmesh_core.errors import BlobCorruptError, DamagedRecordError, StoreError
from flowmesh_core.units import Digest
from flowmesh_sdk.local_inputs import missing_files
from flowmesh_store.blobs import BlobView
from flowmesh_store.hashing import digest_of
from flowmesh_store.store import open_store
from flowmesh_store.tree import store_tree
from flowmesh_worker.data.outputs import Outputs
from flowmesh_worker.ipc.frames import HostOutput

LONG_S = 20.0
HONEST = b"an honest output"
Place = Callable[[Path], None]


@pytest.mark.parametrize("place", PLACED)
@pytest.mark.parametrize("address", ["memory:", "directory"])
async def test_an_output_is_a_regular_file(place: Place, address: str, tmp_path: Path) -> None:
    store = open_store(address if ":" in address else str(tmp_path / "store"), spool_dir=tmp_path)
    outputs = Outputs(store)
    path, digest = tmp_path / "output", digest_of(HONEST)
    place(path)
    blob = {"text": HostOutput("blob", path=str(path))}
    async with asyncio.timeout(LONG_S):
        with pytest.raises(StoreError, match="not a regular file") as refused:
            await outputs.store(blob, None, token_of())
        assert not refused.value.retryable  # else it would be read again for ever
        with pytest.raises(StoreError, match="not a regular file"):
            await blobs_of(store).put(digest, path)
        path.unlink()
        path.write_bytes(HONEST)
        stored, _ = await outputs.store(blob, None, token_of())
        assert stored["text"].blob == digest
    store.close()


class Swapping:
    """A store at whose first put the attacker replaces a file that was listed already."""

    def __init__(self, blobs: BlobView, swap: Callable[[], None]) -> None:
        self._blobs = blobs
        self._swap: Callable[[], None] | None = swap

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        if self._swap is not None:
            self._swap()
            self._swap = None
        await self._blobs.put(digest, data)


@pytest.mark.parametrize("place", PLACED)
async def test_a_listed_file_of_a_model_is_regular_when_it_is_read(
    place: Place, tmp_path: Path
) -> None:
    store = open_store("memory:")
    folder = tmp_path / "model"
    folder.mkdir()
    for number in range(20):  # more than are read at once
        (folder / f"{number:02}.json").write_bytes(b"%d" % number)
    tree = await store_tree(blobs_of(store), folder)
    assert len(tree.files) == 20
    last = folder / "19.json"

    def swap() -> None:
        last.unlink()
        place(last)

    async with asyncio.timeout(LONG_S):
        with pytest.raises(StoreError, match="not a regular file"):
            await store_tree(cast("BlobView", Swapping(blobs_of(store), swap)), folder)


@pytest.mark.parametrize("place", PLACED)
async def test_a_blob_in_a_shared_directory_is_damaged_and_is_put_again(
    place: Place, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "store"))
    blobs = blobs_of(store)
    digest = digest_of(HONEST)
    await blobs.put(digest, HONEST)
    [path] = (tmp_path / "store" / "cas").rglob(digest)
    path.unlink()
    place(path)
    async with asyncio.timeout(LONG_S):
        assert await blobs.missing([digest], {digest: len(HONEST)}) == {digest}
        with pytest.raises(BlobCorruptError):
            await blobs.get(digest)
        # It is removed, so that the next put, or the step that made it, stores it again.
        assert path.name not in os.listdir(path.parent)
        place(path)
        await blobs.put(digest, HONEST)
        assert await blobs.get(digest) == HONEST
    store.close()


@pytest.mark.parametrize("place", PLACED)
async def test_a_record_in_a_shared_directory_is_damaged(place: Place, tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    key = "runs/a/final"
    await store.records.write(key, b"{}")
    path = tmp_path / key
    path.unlink()
    place(path)
    async with asyncio.timeout(LONG_S):
        with pytest.raises(DamagedRecordError, match="not a regular file"):
            await store.records.read(key)
        path.unlink()
        await store.records.write(key, b"{}")
        assert await store.records.read(key) is not None
    store.close()


async def test_the_control_plane_goes_on_beside_a_fifo_in_place_of_content(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric, asyncio.timeout(LONG_S):
        upload = "/v1/datasets?namespace=team-a&name=x.jsonl"
        told = await fabric.call("POST", upload, data=b'{"a":1}\n', status=201)
        stored = [p for p in (tmp_path / "store" / "cas").rglob("*") if p.is_file()]
        assert stored
        for blob in stored:
            blob.unlink()
            fifo(blob)
        spec = {
            "inputs": {"x": {"dataset": told["reference"]}},
            "steps": [{"name": "a", "uses": "test.noop"}],
        }
        document = {"document": workflow("reads", spec)}
        told = await fabric.call("POST", "/v1/plan", body=document, status=422)
        assert "damaged" in told["error"]["message"]
        again = await fabric.call("POST", upload, data=b'{"a":1}\n', status=201)
        spec["inputs"] = {"x": {"dataset": again["reference"]}}
        await fabric.call("POST", "/v1/plan", body={"document": workflow("reads", spec)})


@pytest.mark.parametrize("name", ["fifo.jsonl", "endless.jsonl"])
def test_a_local_input_of_a_workflow_is_a_file(name: str, tmp_path: Path) -> None:
    {"fifo.jsonl": fifo, "endless.jsonl": endless}[name](tmp_path / name)
    (tmp_path / "data.jsonl").write_bytes(b'{"a":1}\n')
    (tmp_path / "linked.jsonl").symlink_to("data.jsonl")  # a user's own link is followed
    inputs = {"x": {"dataset": f"./{name}"}, "y": {"dataset": "./linked.jsonl"}}
    [problem] = missing_files({"spec": {"inputs": inputs}}, tmp_path)
    assert problem.path == "spec.inputs.x.dataset"
    assert "is not a regular file" in problem.message
