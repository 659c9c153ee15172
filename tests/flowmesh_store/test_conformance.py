"""What every backend does alike: memory, directory, and a real S3 server."""

import asyncio
import os
from pathlib import Path

import pytest
from backends import Backend
from tests.blob_views import SCOPE, blobs_of

from flowmesh_core.errors import (
    BlobCorruptError,
    BlobNotFoundError,
    ConditionFailedError,
    StoreError,
)
from flowmesh_core.units import Digest
from flowmesh_store.conditional_write_check import prove_conditional_writes
from flowmesh_store.hashing import digest_of

ABSENT = digest_of(b"nobody put this")
of_blobs = pytest.mark.parametrize(
    "backend",
    [
        "memory",
        "filesystem",
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("blob-service", marks=pytest.mark.slow),
    ],
    indirect=True,
)
"""Also for a worker's blobs, which it reads and puts through the blob service."""
SIZES = [0, 1, 4096, 64 << 10, (64 << 10) + 1, 3 << 20]


@of_blobs
@pytest.mark.parametrize("size", SIZES)
async def test_a_blob_reads_back_as_it_was_put(backend: Backend, size: int) -> None:
    data = os.urandom(size)
    digest = digest_of(data)
    await blobs_of(backend.store).put(digest, data)
    assert await blobs_of(backend.store).get(digest) == data


@of_blobs
@pytest.mark.parametrize("size", SIZES)
async def test_a_file_is_put_and_fetched_and_the_source_remains(
    backend: Backend, size: int, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(size))
    digest = digest_of(source.read_bytes())
    await blobs_of(backend.store).put(digest, source)
    assert await blobs_of(backend.store).fetch(digest, target) == size
    assert target.read_bytes() == source.read_bytes()


@of_blobs
@pytest.mark.parametrize("size", SIZES)
async def test_a_spooled_blob_needs_no_second_pass_and_leaves_no_spool(
    backend: Backend, size: int
) -> None:
    data = os.urandom(size)
    with blobs_of(backend.store).spool() as writer:
        for start in range(0, size, 100_000):
            writer.write(data[start : start + 100_000])
        spooled = writer.finish()
    assert (spooled.digest, spooled.size_bytes) == (digest_of(data), size)
    await blobs_of(backend.store).put_spooled(spooled)
    assert not spooled.path.exists()
    assert await blobs_of(backend.store).get(spooled.digest) == data


@of_blobs
async def test_64_mib_stream_through_files_and_concurrent_fetches_agree(
    backend: Backend, tmp_path: Path
) -> None:
    block = os.urandom(1 << 20)
    with blobs_of(backend.store).spool(expected_bytes=64 << 20) as writer:
        for number in range(64):
            writer.write(number.to_bytes(8, "big") + block[8:])
        spooled = writer.finish()
    await blobs_of(backend.store).put_spooled(spooled)
    targets = [tmp_path / f"copy-{i}" for i in range(3)]
    fetches = (blobs_of(backend.store).fetch(spooled.digest, t) for t in targets)
    assert await asyncio.gather(*fetches) == [64 << 20] * 3
    assert len({t.read_bytes() for t in targets}) == 1


@of_blobs
async def test_missing_returns_exactly_the_absent_blobs(backend: Backend) -> None:
    there = [await put(backend, f"blob {i}".encode()) for i in range(200)]
    absent = {digest_of(f"absent {i}".encode()) for i in range(200)}
    assert await blobs_of(backend.store).missing([*there, *absent]) == absent
    assert await blobs_of(backend.store).missing([]) == set()


@of_blobs
@pytest.mark.parametrize("damage", ["truncate", "empty", "append"])
async def test_a_blob_of_another_size_than_the_expected_one_is_missing(
    backend: Backend, damage: str
) -> None:
    whole, other = await put(backend, b"whole"), await put(backend, b"other")
    backend.rewrite(other, damaged(b"other", damage))
    missing = blobs_of(backend.store).missing
    assert await missing([whole, other], {whole: 5, other: 5}) == {other}
    assert await missing([whole], {whole: 4}) == {whole}


@of_blobs
async def test_an_absent_blob_is_a_named_miss_and_writes_no_file(
    backend: Backend, tmp_path: Path
) -> None:
    target = tmp_path / "out" / "target"
    target.parent.mkdir()
    with pytest.raises(BlobNotFoundError, match=ABSENT):
        await blobs_of(backend.store).get(ABSENT)
    with pytest.raises(BlobNotFoundError, match=ABSENT):
        await blobs_of(backend.store).fetch(ABSENT, target)
    assert list(target.parent.iterdir()) == []


@of_blobs
@pytest.mark.parametrize("size", [1000, 200_000, 12 << 20])
@pytest.mark.parametrize("as_file", [False, True])
async def test_content_under_a_wrong_digest_is_refused_and_not_stored(
    backend: Backend, size: int, as_file: bool, tmp_path: Path
) -> None:
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    with pytest.raises(BlobCorruptError):
        await blobs_of(backend.store).put(ABSENT, tmp_path / "source" if as_file else data)
    assert await blobs_of(backend.store).missing([ABSENT]) == {ABSENT}


@of_blobs
@pytest.mark.parametrize("size", [1000, 200_000])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "append"])
@pytest.mark.parametrize("way", ["get", "fetch"])
async def test_a_damaged_blob_is_found_on_reading_and_repaired_by_the_next_put(
    backend: Backend, size: int, damage: str, way: str, tmp_path: Path
) -> None:
    data = os.urandom(size)
    digest = await put(backend, data)
    backend.rewrite(digest, damaged(data, damage))
    with pytest.raises((BlobCorruptError, BlobNotFoundError)) as caught:
        await read(backend, digest, way, tmp_path)
    assert caught.value.digest == digest
    assert await blobs_of(backend.store).missing([digest]) == {digest}
    assert not (tmp_path / "target").exists()
    await blobs_of(backend.store).put(digest, data)
    assert await read(backend, digest, way, tmp_path) == data


@of_blobs
@pytest.mark.parametrize("way", ["get", "fetch"])
async def test_a_deleted_blob_is_a_miss_and_can_be_put_again(
    backend: Backend, way: str, tmp_path: Path
) -> None:
    digest = await put(backend, b"to be lost")
    backend.rewrite(digest, None)
    with pytest.raises(BlobNotFoundError):
        await read(backend, digest, way, tmp_path)
    await blobs_of(backend.store).put(digest, b"to be lost")
    assert await read(backend, digest, way, tmp_path) == b"to be lost"


@of_blobs
async def test_an_invalid_digest_never_becomes_a_path(backend: Backend) -> None:
    for wrong in ("../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "", "0" * 64 + "\n"):
        with pytest.raises(StoreError, match="not a digest"):
            await blobs_of(backend.store).get(Digest(wrong))
        with pytest.raises(StoreError, match="not a digest"):
            await blobs_of(backend.store).missing([Digest(wrong)])


@of_blobs
async def test_concurrent_puts_of_the_same_blobs_leave_each_complete(backend: Backend) -> None:
    contents = [os.urandom(20_000) for _ in range(8)]
    await asyncio.gather(*(put(backend, c) for c in contents * 8))
    for content in contents:
        assert await blobs_of(backend.store).get(digest_of(content)) == content


async def test_a_record_is_created_read_replaced_and_never_overwritten_blindly(
    backend: Backend,
) -> None:
    records = backend.store.records
    assert await records.read("runs/u1/spec") is None
    first = await records.write("runs/u1/spec", b"one")
    with pytest.raises(ConditionFailedError, match="runs/u1/spec"):
        await records.write("runs/u1/spec", b"two")
    second = await records.write("runs/u1/spec", b"two", if_match=first)
    with pytest.raises(ConditionFailedError):
        await records.write("runs/u1/spec", b"three", if_match=first)
    found = await records.read("runs/u1/spec")
    assert found is not None
    assert (found.data, found.etag) == (b"two", second)


async def test_if_match_on_a_missing_record_fails(backend: Backend) -> None:
    etag = await backend.store.records.write("runs/u/spec", b"x")
    with pytest.raises(ConditionFailedError):
        await backend.store.records.write("runs/v/spec", b"y", if_match=etag)
    assert await backend.store.records.read("runs/v/spec") is None


@pytest.mark.parametrize("size", [10, 100_000])
async def test_of_64_racing_creators_one_wins_and_its_content_stands(
    backend: Backend, size: int
) -> None:
    await race(backend, "epochs/7", None, size)


@pytest.mark.parametrize("size", [10, 100_000])
async def test_of_64_racing_replacers_one_wins_and_its_content_stands(
    backend: Backend, size: int
) -> None:
    await race(backend, "actions/a/b", await backend.store.records.write("actions/a/b", b"0"), size)


async def test_keys_come_in_order_and_by_prefix(backend: Backend) -> None:
    names = ["runs/a-b/spec", "runs/a/spec", "runs/a/ledger/2-1", "runs/a/ledger/10-1",
             "runs/ab/spec", "epochs/1", "runs/a.b/final", "actions/=@x/0"]  # fmt: skip
    for name in names:
        await backend.store.records.write(name, name.encode())
    await put(backend, b"a blob is no record")
    for prefix in ("", "runs/", "runs/a", "runs/a/", "runs/a/l", "epochs/1", "nothing/"):
        found = [k async for k in backend.store.records.keys(prefix)]
        assert found == sorted(n for n in names if n.startswith(prefix)), prefix


async def test_more_keys_than_one_page_are_all_listed(backend: Backend) -> None:
    names = [f"lineage/by-output/{i:05d}" for i in range(1_100)]
    for start in range(0, len(names), 50):
        await asyncio.gather(
            *(backend.store.records.write(n, b"") for n in names[start : start + 50])
        )
    assert [k async for k in backend.store.records.keys("lineage/")] == names


async def test_folders_lists_the_folder_names_of_one_level(backend: Backend) -> None:
    records = backend.store.records
    for key in ("runs/b/spec", "runs/a/ledger/1", "runs/a/spec", "runs/a.b/spec", "runs/loose"):
        await records.write(key, b"")
    await records.write("runsother/c/spec", b"")
    assert [name async for name in records.folders("runs/")] == ["a", "a.b", "b"]
    assert [name async for name in records.folders("runs/a/")] == ["ledger"]
    assert [name async for name in records.folders("none/")] == []


async def test_malformed_keys_are_refused(backend: Backend) -> None:
    for wrong in ("", "/", "a//b", "../x", "a/../b", ".tmp/x", "cas/00/x", "a b", "a/", "ü", "a\n"):
        with pytest.raises(StoreError, match="not a key"):
            await backend.store.records.write(wrong, b"")
        with pytest.raises(StoreError, match="not a key"):
            await backend.store.records.read(wrong)


async def test_several_clients_can_prove_conditional_writes_concurrently(
    backend: Backend,
) -> None:
    await asyncio.gather(*(prove_conditional_writes(backend.store.records) for _ in range(3)))


async def test_a_sweep_sees_sizes_and_ages_and_deletes_only_what_is_old_enough(
    backend: Backend,
) -> None:
    old, young = await put(backend, b"old"), await put(backend, b"young!")
    backend.age(old, 1000)
    sweep = backend.store.sweepable_blobs
    found = {b.digest: b async for b in sweep.blobs()}
    assert {d: b.size_bytes for d, b in found.items()} == {old: 3, young: 6}
    assert found[old].age_s >= 999
    assert found[young].age_s < 500
    assert not await sweep.delete(SCOPE, young, older_than_s=500)
    assert await sweep.delete(SCOPE, old, older_than_s=500)
    assert not await sweep.delete(SCOPE, old, older_than_s=500)
    assert await blobs_of(backend.store).missing([old, young]) == {old}


async def test_records_can_be_listed_with_their_age_and_deleted_when_old(backend: Backend) -> None:
    await backend.store.records.write("actions/s/old", b"12345")
    await backend.store.records.write("actions/s/young", b"1")
    backend.age("actions/s/old", 1000)
    sweep = backend.store.sweepable_records
    found = {r.key: r async for r in sweep.aged("actions/")}
    assert found["actions/s/old"].size_bytes == 5
    assert found["actions/s/old"].age_s >= 999
    assert not await sweep.delete("actions/s/young", older_than_s=500)
    assert await sweep.delete("actions/s/old", older_than_s=500)
    assert not await sweep.delete("actions/s/old", older_than_s=500)
    assert [k async for k in backend.store.records.keys("actions/")] == ["actions/s/young"]


@of_blobs
async def test_putting_an_old_blob_again_resets_its_age(backend: Backend, tmp_path: Path) -> None:
    data = b"kept by those who still make it"
    digest = await put(backend, data)
    (tmp_path / "file").write_bytes(data)
    for again in (data, tmp_path / "file"):
        backend.age(digest, 13 * 3600)
        await blobs_of(backend.store).put(digest, again)
        assert not await backend.store.sweepable_blobs.delete(SCOPE, digest, older_than_s=3600)


async def test_the_same_store_opened_again_has_the_same_content(backend: Backend) -> None:
    digest = await put(backend, b"shared")
    await backend.store.records.write("epochs/1", b"me")
    other = backend.reopen()
    assert await blobs_of(other).get(digest) == b"shared"
    with pytest.raises(ConditionFailedError):
        await other.records.write("epochs/1", b"you")


async def put(backend: Backend, data: bytes) -> Digest:
    digest = digest_of(data)
    await blobs_of(backend.store).put(digest, data)
    return digest


async def read(backend: Backend, digest: Digest, way: str, tmp_path: Path) -> bytes:
    if way == "get":
        return await blobs_of(backend.store).get(digest)
    await blobs_of(backend.store).fetch(digest, tmp_path / "target")
    return (tmp_path / "target").read_bytes()


def damaged(data: bytes, damage: str) -> bytes:
    flipped = bytes([data[0] ^ 1]) + data[1:]
    return {"flip": flipped, "truncate": data[:-1], "empty": b"", "append": data + b"x"}[damage]


async def race(backend: Backend, key: str, if_match: str | None, size: int) -> None:
    async def write(number: int) -> bytes | None:
        data = number.to_bytes(8, "big") * (size // 8 + 1)
        try:
            await backend.store.records.write(key, data, if_match=if_match)
        except ConditionFailedError:
            return None
        return data

    won = [w for w in await asyncio.gather(*map(write, range(1, 65))) if w is not None]
    found = await backend.store.records.read(key)
    assert found is not None
    assert won == [found.data]
