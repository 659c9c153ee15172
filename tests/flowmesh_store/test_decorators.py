"""Verifying, metering and spooling."""

import asyncio
from pathlib import Path

import pytest
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_store.counting_meter import CountingMeter

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError, ConditionFailedError
from flowmesh_core.units import Digest
from flowmesh_store.hashing import digest_of, digest_of_file
from flowmesh_store.memory import MemoryBlobs, MemoryContent
from flowmesh_store.metered import MeteredBlobs, MeteredRecords
from flowmesh_store.spool import SpoolWriter, verified_file
from flowmesh_store.store import open_store
from flowmesh_store.verified_blobs import VerifyingBlobs


class BadNetwork(MemoryBlobs):
    """A store whose first reads arrive damaged."""

    def __init__(self, bad_reads: int) -> None:
        super().__init__(MemoryContent(), SCOPE)
        self.bad_reads = bad_reads
        self.discarded: list[Digest] = []

    async def get(self, digest: Digest) -> bytes:
        data = await super().get(digest)
        self.bad_reads -= 1
        return data if self.bad_reads < 0 else b"damaged" + data

    async def discard(self, digest: Digest) -> None:
        self.discarded.append(digest)
        await super().discard(digest)


@pytest.mark.parametrize("way", ["get", "fetch"])
async def test_one_damaged_transfer_is_repeated_unnoticed(way: str, tmp_path: Path) -> None:
    inner = BadNetwork(bad_reads=1)
    blobs = VerifyingBlobs(inner, inner)
    await blobs.put(digest_of(b"x"), b"x")
    if way == "get":
        assert await blobs.get(digest_of(b"x")) == b"x"
    else:
        assert await blobs.fetch(digest_of(b"x"), tmp_path / "target") == 1
    assert inner.discarded == []


@pytest.mark.parametrize("way", ["get", "fetch"])
async def test_a_second_damaged_read_is_reported_and_an_intact_blob_is_not_deleted(
    way: str, tmp_path: Path
) -> None:
    inner = BadNetwork(bad_reads=2)
    blobs = VerifyingBlobs(inner, inner)
    await blobs.put(digest_of(b"x"), b"x")
    with pytest.raises(BlobCorruptError):
        await (
            blobs.get(digest_of(b"x"))
            if way == "get"
            else blobs.fetch(digest_of(b"x"), tmp_path / "target")
        )
    assert inner.discarded == [digest_of(b"x")]
    assert await blobs.get(digest_of(b"x")) == b"x"


async def test_a_meter_records_every_operation_with_size_and_error(tmp_path: Path) -> None:
    meter = CountingMeter()
    store = open_store(tmp_path / "store")
    blobs = blobs_of(store.with_areas(lambda area: MeteredBlobs(area, meter)))
    records = MeteredRecords(store.records, meter)
    (tmp_path / "file").write_bytes(b"12345")
    await blobs.put(digest_of(b"123"), b"123")
    await blobs.put(digest_of(b"12345"), tmp_path / "file")
    with blobs.spool() as writer:
        writer.write(b"1234567")
        await blobs.put_spooled(writer.finish())
    await blobs.get(digest_of(b"123"))
    await blobs.fetch(digest_of(b"12345"), tmp_path / "target")
    await blobs.missing([digest_of(b"?")])
    with pytest.raises(BlobNotFoundError):
        await blobs.get(digest_of(b"?"))
    await records.write("runs/u/spec", b"1234")
    with pytest.raises(ConditionFailedError):
        await records.write("runs/u/spec", b"1234")
    await records.read("runs/u/spec")
    await records.read("runs/v/spec")
    assert [key async for key in records.keys("runs/")] == ["runs/u/spec"]
    assert {k: (t.count, t.size_bytes) for k, t in meter.totals.items()} == {
        ("blob.put", "ok"): (3, 15),
        ("blob.get", "ok"): (1, 3),
        ("blob.fetch", "ok"): (1, 5),
        ("blob.missing", "ok"): (1, 0),
        ("blob.get", "BlobNotFoundError"): (1, 0),
        ("record.write", "ok"): (1, 4),
        ("record.write", "ConditionFailedError"): (1, 0),
        ("record.read", "ok"): (2, 4),
        ("record.keys", "ok"): (1, 0),
    }
    assert all(total.seconds > 0 for total in meter.totals.values())


def test_a_spool_that_is_not_finished_leaves_no_file(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        writer.write(b"half")
    assert list(tmp_path.iterdir()) == []


def test_a_spool_hashes_bytes_and_views_alike(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as writer:
        for part in (b"one", bytearray(b"two"), memoryview(b"three")):
            assert writer.write(part) == len(part)
        spooled = writer.finish()
    assert spooled.path.read_bytes() == b"onetwothree"
    assert spooled.digest == digest_of(b"onetwothree") == digest_of_file(spooled.path)


def test_a_verified_file_replaces_its_target_only_with_the_right_content(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"before")
    with pytest.raises(BlobCorruptError), verified_file(target, digest_of(b"right")) as writer:
        writer.write(b"wrong")
    assert target.read_bytes() == b"before"
    with verified_file(target, digest_of(b"right")) as writer:
        writer.write(b"right")
    assert target.read_bytes() == b"right"
    assert list(tmp_path.iterdir()) == [target]


async def test_a_cancelled_put_leaves_a_complete_blob_or_none(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    data = b"x" * (8 << 20)
    task = asyncio.create_task(blobs_of(store).put(digest_of(data), data))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await blobs_of(store).put(digest_of(data), data)
    assert await blobs_of(store).get(digest_of(data)) == data
