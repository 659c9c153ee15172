"""Decoding in a process of its own: what it stores, and what ends it."""

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_control.waiting import until

from flowmesh_control.evaluators.confinement import child_environment
from flowmesh_control.importer import process as process_module
from flowmesh_control.importer.child import frames
from flowmesh_control.importer.concurrent_puts import ConcurrentPuts
from flowmesh_control.importer.frames import BlobEnd, DatasetDecoded, DecodingRefused
from flowmesh_control.importer.process import Importer
from flowmesh_core.dataset import dataset_digest, decode_manifest
from flowmesh_core.errors import BlobCorruptError, ContentLimitError, IdentityError, StoreFullError
from flowmesh_core.identity import digest_bytes
from flowmesh_store.datasets import read_rows_file, rows_to_chunks
from flowmesh_store.store import Store, open_store


@pytest.fixture
def directory(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def long_rows(path: Path) -> bytes:
    """Rows whose chunks are longer than what one frame carries."""
    r = random.Random(2)
    lines = [b'{"n": %d, "t": "%s"}' % (n, r.randbytes(40_000).hex().encode()) for n in range(90)]
    path.write_bytes(b"\n".join(lines))
    return path.read_bytes()


async def test_a_file_becomes_the_same_data_set_as_when_it_is_read_as_a_whole(
    directory: Store, tmp_path: Path
) -> None:
    path = tmp_path / "upload"
    data = long_rows(path)
    found = await Importer(directory).decode("x.jsonl", path, len(data), scope=SCOPE)
    manifest, blobs = rows_to_chunks(read_rows_file("x.jsonl", data))
    assert max(map(len, blobs.values())) > 2 << 20
    assert decode_manifest(await blobs_of(directory).get(found.manifest)) == manifest
    assert (found.digest, found.rows) == (dataset_digest(manifest), 90)
    assert found.columns == ("n", "t")
    assert found.size_bytes == manifest.blob_bytes
    for digest, content in blobs.items():
        assert await blobs_of(directory).get(digest) == content
    assert not list((tmp_path / "store" / ".tmp").glob("*.partial"))


async def test_a_file_error_is_reported_with_its_location(directory: Store, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(b'{"a": 1}\n{"a": "x"}\n')
    importer = Importer(directory)
    with pytest.raises(IdentityError, match=r"row 1 has an integer, row 2 has a string") as caught:
        await importer.decode("x.jsonl", path, 20, scope=SCOPE)
    assert not isinstance(caught.value, ContentLimitError)
    assert caught.value.where == "column 'a'"


async def test_a_process_that_takes_too_long_is_ended(directory: Store, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(b'{"a": 1}\n')
    with pytest.raises(ContentLimitError, match="it was not read within 0 s; cut it"):
        await Importer(directory, deadline_s=0.0).decode("x.jsonl", path, 9, scope=SCOPE)
    assert not decoding_now()


async def test_a_client_that_leaves_ends_the_process(directory: Store, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    data = long_rows(path)
    task = asyncio.create_task(Importer(directory).decode("x.jsonl", path, len(data), scope=SCOPE))
    await until(decoding_now)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not decoding_now()


def decoding_now() -> list[int]:
    found = []
    for child in psutil.Process().children():
        try:
            if "flowmesh_control.importer.child" in child.cmdline():
                found.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


async def test_a_process_that_dies_silently_is_reported_as_an_error_of_the_file(
    directory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "upload"
    path.write_bytes(b'{"a": 1}\n')
    for program, code in (("/bin/false", 1), ("/bin/echo", 0)):
        monkeypatch.setattr(process_module.sys, "executable", program)
        with pytest.raises(ContentLimitError, match=f"ended with code {code}; it may have needed"):
            await Importer(directory).decode("x.jsonl", path, 9, scope=SCOPE)
    monkeypatch.undo()
    assert (await Importer(directory).decode("x.jsonl", path, 9, scope=SCOPE)).rows == 1
    assert sys.executable != "/bin/echo"


def test_the_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "FLOWMESH_WORKER_TOKEN", "FLOWMESH_S3_SECRET_KEY"):
        monkeypatch.setenv(name, "secret")
    assert "secret" not in child_environment().values()


def test_a_file_that_needs_too_much_memory_or_nests_too_deeply_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "upload"
    path.write_bytes(b'{"a": 1}\n')
    assert [type(f) for f in frames("x.jsonl", path)] == [BlobEnd, BlobEnd, DatasetDecoded]
    for error, words in ((MemoryError, "more than 1024 MiB"), (RecursionError, "too deeply")):

        def fail(*_: Any, error: type[BaseException] = error) -> None:
            raise error

        monkeypatch.setattr("flowmesh_control.importer.child.reader_of", fail)
        (refused,) = frames("x.jsonl", path)
        assert isinstance(refused, DecodingRefused)
        assert refused.limit
        assert words in refused.message


def parquet(path: Path, column: Any, **metadata: bytes) -> Path:
    """A file of one column ``a`` with metadata of ours."""
    given = {f"flowmesh.{name}": value for name, value in metadata.items()}
    field = pa.field("a", column.type, metadata=given)
    table = pa.Table.from_arrays([column], schema=pa.schema([field]))
    pq.write_table(table, path, use_dictionary=False, compression="none")
    return path


@pytest.mark.parametrize(
    ("type_named", "words"),
    [
        (b"\xff\xfe", r"b'\xff\xfe' is not a column type"),
        (b"nonsense", "b'nonsense' is not a column type"),
        (b"json", "a value is not JSON"),
    ],
)
def test_odd_metadata_of_a_parquet_file_is_refused_by_its_column(
    tmp_path: Path, type_named: bytes, words: str
) -> None:
    path = parquet(tmp_path / "upload", pa.array(["text"]), type=type_named)
    *_, refused = frames("x.parquet", path)
    assert isinstance(refused, DecodingRefused)
    assert words in refused.message
    assert "column 'a'" in refused.where
    assert not refused.limit


def test_text_in_a_parquet_file_that_is_not_utf_8_is_refused_by_its_column(tmp_path: Path) -> None:
    path = parquet(tmp_path / "upload", pa.array(["QQQQ"]))
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"\xff" * 4))
    *_, refused = frames("x.parquet", path)
    assert isinstance(refused, DecodingRefused)
    assert "a value is not UTF-8" in refused.message
    assert refused.where == "column 'a'"


def test_a_library_error_while_decoding_refuses_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("odd bytes")

    path = tmp_path / "upload"
    path.write_bytes(b'{"a": 1}\n')
    monkeypatch.setattr("flowmesh_control.importer.child.reader_of", fail)
    refusal = DecodingRefused("it cannot be read: odd bytes", "x.jsonl", "write it again", False)
    assert list(frames("x.jsonl", path)) == [refusal]


class Gated:
    """Blobs that take content once they are let to; counts what waits."""

    def __init__(self, error: Exception | None = None) -> None:
        self.open = asyncio.Event()
        self.waiting = self.most = 0
        self.held: set[str] = set()
        self.error = error

    async def get(self, digest: str) -> bytes:
        return b""

    async def put(self, digest: str, data: bytes) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.open.wait()
        self.waiting -= 1
        if self.error is not None:
            raise self.error
        self.held.add(digest)


async def test_blobs_are_put_side_by_side_and_not_too_many_at_once() -> None:
    blobs = Gated()
    parts = [b"%d" % n for n in range(100)]

    async def put() -> None:
        async with ConcurrentPuts(blobs, at_once=4) as puts:  # type: ignore[arg-type]
            for part in parts:
                await puts.add(digest_bytes(part), part)

    task = asyncio.create_task(put())
    await until(lambda: blobs.waiting == 4)
    blobs.open.set()
    await task
    assert blobs.most == 4
    assert blobs.held == {digest_bytes(part) for part in parts}


async def test_a_full_store_ends_the_upload() -> None:
    blobs = Gated(StoreFullError("no space is left"))
    blobs.open.set()

    async def put() -> None:
        async with ConcurrentPuts(blobs, at_once=2) as puts:  # type: ignore[arg-type]
            for n in range(50):
                await puts.add(digest_bytes(b"%d" % n), b"%d" % n)

    with pytest.raises(StoreFullError):
        await put()
    assert not blobs.held


async def test_bytes_of_another_digest_are_not_put() -> None:
    blobs = Gated()
    with pytest.raises(BlobCorruptError, match="do not have their digest"):
        async with ConcurrentPuts(blobs) as puts:  # type: ignore[arg-type]
            await puts.add(digest_bytes(b"a"), b"b")
    assert not blobs.held
