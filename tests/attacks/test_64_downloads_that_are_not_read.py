"""Attacker: T2, a tenant with a token, and a worker that wrote what the tenant downloads.
Action: downloads large files, without end and without reading them, and files of other sizes than
    their manifest says.
Must not happen: they fill the control plane's memory, keep others' out, or become other files.
"""

import asyncio
import contextlib
import io
import json
import struct
import tarfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.attacks.growth import bounded_growth
from tests.attacks.tenants import ATTACKER, OWNER, Tenants, tenants

from flowmesh_control.api import content_sender
from flowmesh_control.api.content_sender import ContentSender
from flowmesh_control.queries.downloads import download_of
from flowmesh_core.errors import BlobCorruptError
from flowmesh_core.identity import digest_bytes, tree_identity
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.store import open_store
from flowmesh_store.tree import TreeFile, encode_tree

LARGE, SMALL = 160 << 20, 24 << 20
NAMESPACES = {ATTACKER: "team-b", OWNER: "team-a"}


def packed(folder: Path, size: int) -> Path:
    """Returns a tar with a file of weights of this size."""
    weights, path = folder / "model.safetensors", folder / f"{size}.tar"
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"w": tensor}).encode()
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    (folder / "config.json").write_text("{}")
    with tarfile.open(path, "w") as tar:
        for name in ("config.json", "model.safetensors"):
            tar.add(folder / name, name)
    return path


async def uploaded(fabric: Tenants, who: str, path: Path) -> str:
    """Uploads a model; returns the path of its download."""
    namespace = NAMESPACES[who]
    with path.open("rb") as file:
        upload = f"/v1/trees?namespace={namespace}"
        found = await fabric.ask(who, "POST", upload, data=file, status=201)
    return f"/v1/content?namespace={namespace}&reference={found['reference']}"


async def downloaded(fabric: Tenants, who: str, path: str) -> int:
    """Reads a download; returns its size."""
    headers = {"Authorization": f"Bearer {who}-token"}
    async with fabric.http.get(fabric.control.url + path, headers=headers) as response:
        assert response.status == 200
        return sum([len(part) async for part in response.content.iter_chunked(1 << 20)])


@contextlib.asynccontextmanager
async def begun(
    fabric: Tenants, who: str, path: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Asks for a download of which nothing is read."""
    host, _, port = fabric.control.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {who}-token\r\n\r\n"
    writer.write(head.encode())
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.slow
async def test_a_large_file_is_sent_from_the_disk(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        path = await uploaded(fabric, ATTACKER, packed(tmp_path, LARGE))
        with bounded_growth():
            assert await downloaded(fabric, ATTACKER, path) > LARGE


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


async def test_downloads_that_are_not_read_keep_no_others_out_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_sender, "AT_ONCE", 4)
    monkeypatch.setattr(content_sender, "OF_ONE", 2)
    monkeypatch.setattr(content_sender, "TAKEN_WITHIN_S", 0.2)
    sender = ContentSender()
    monkeypatch.setattr("flowmesh_control.api.app.ContentSender", lambda: sender)
    taken = sender._places._taken
    async with tenants(tmp_path) as fabric, contextlib.AsyncExitStack() as stack:
        tar = packed(tmp_path, SMALL)
        hostile = await uploaded(fabric, ATTACKER, tar)
        own = await uploaded(fabric, OWNER, tar)
        for _ in range(6):
            await stack.enter_async_context(begun(fabric, ATTACKER, hostile))
        await until(lambda: taken["team-b"] == 2)
        async with asyncio.timeout(60):
            assert await downloaded(fabric, OWNER, own) > SMALL
        assert taken["team-b"] <= 2
        await until(lambda: not sender._places._waiting and not taken)
        assert await downloaded(fabric, ATTACKER, hostile) > SMALL


def hidden_files() -> bytes:
    """Returns a file's content that is a tar of another file itself."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("../escaped")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"bad"))
    return b"\0" * tarfile.BLOCKSIZE + made.getvalue()


@pytest.mark.parametrize("said", [0, tarfile.BLOCKSIZE, 1 << 30])
async def test_a_file_of_another_size_than_its_manifest_says_is_not_sent_whole(
    tmp_path: Path, said: int
) -> None:
    blobs = open_store(tmp_path / "store").view(write="ns-a", read=("ns-a",))

    async def stored(said: int, content: bytes) -> Artifact:
        digest = digest_bytes(content)
        await blobs.put(digest, content)
        files = [TreeFile("model.safetensors", digest, said)]
        manifest = encode_tree(files)
        blob = digest_bytes(manifest)
        await blobs.put(blob, manifest)
        return Artifact("model", tree_identity("model", files), blob)

    false = await stored(said, hidden_files())
    with pytest.raises(BlobCorruptError, match="its manifest says"):
        await anext(download_of(blobs, (false,)).pieces)
    right = await stored(len(hidden_files()), hidden_files())
    whole = b"".join([piece async for piece in download_of(blobs, (right,)).pieces])
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        assert tar.getnames() == ["model.safetensors"]
