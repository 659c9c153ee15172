"""No space left: a clear error, and nothing left behind."""

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.blob_views import blobs_of

from flowmesh_core.errors import StoreFullError
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingViews
from flowmesh_store.collection.collector import Collector
from flowmesh_store.hashing import digest_of
from flowmesh_store.store import Store, open_store

LIMIT_BYTES = 1 << 20
TOO_MUCH = os.urandom(3 * LIMIT_BYTES)
TOO_MUCH_TEXT = TOO_MUCH.hex().encode()
WAYS = ["bytes", "file", "spool", "record", "replaced record", "result"]


@contextmanager
def no_file_beyond(size_bytes: int) -> Iterator[None]:
    """Any write past this size fails, as a disk without space does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root and CAP_SYS_ADMIN")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def write(store: Store, way: str, source: Path) -> None:
    if way == "bytes":
        await blobs_of(store).put(digest_of(TOO_MUCH), TOO_MUCH)
    elif way == "file":
        await blobs_of(store).put(digest_of(TOO_MUCH), source)
    elif way == "spool":
        with blobs_of(store).spool() as writer:
            writer.write(TOO_MUCH)
            await blobs_of(store).put_spooled(writer.finish())
    elif way == "record":
        await store.records.write("runs/u/spec", TOO_MUCH)
    elif way == "result":
        await store.records.write("actions/s/large", TOO_MUCH_TEXT)
    else:
        record = await store.records.read("runs/u/small")
        etag = await store.records.write("runs/u/small", b"s") if record is None else record.etag
        await store.records.write("runs/u/small", TOO_MUCH, if_match=etag)


@pytest.mark.parametrize("way", WAYS)
async def test_a_write_that_does_not_fit_is_reported_and_leaves_nothing(
    tmp_path: Path, way: str
) -> None:
    (tmp_path / "source").write_bytes(TOO_MUCH)
    store = open_store(tmp_path / "store")
    with no_file_beyond(LIMIT_BYTES), pytest.raises(StoreFullError, match="fmesh cache gc"):
        await write(store, way, tmp_path / "source")
    await nothing_is_left(store, tmp_path / "store")


async def test_a_fetch_that_does_not_fit_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for store in (open_store(tmp_path / "store"), open_store("memory:")):
        await blobs_of(store).put(digest_of(TOO_MUCH), TOO_MUCH)
        with no_file_beyond(LIMIT_BYTES), pytest.raises(StoreFullError):
            await blobs_of(store).fetch(digest_of(TOO_MUCH), tmp_path / "out" / "target")
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
async def test_on_a_full_disk_everything_fails_cleanly_and_works_again_with_space(
    small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(TOO_MUCH)
    store = open_store(small_disk / "store")
    ballast = small_disk / "ballast"
    for way in WAYS:
        with pytest.raises(StoreFullError):
            await write(store, way, tmp_path / "source")
        await nothing_is_left(store, small_disk / "store")
    fill(ballast)
    with pytest.raises(StoreFullError):
        await blobs_of(store).put(digest_of(b"x" * 9000), b"x" * 9000)
    ballast.unlink()
    await blobs_of(store).put(digest_of(b"x" * 9000), b"x" * 9000)
    assert await blobs_of(store).get(digest_of(b"x" * 9000)) == b"x" * 9000


@pytest.mark.slow
async def test_a_collection_frees_a_full_disk(small_disk: Path) -> None:
    store = open_store(small_disk / "store")
    cache = ActionCache(store.records, ttl_s=1.0, clock=lambda: time.time() - 1000)
    results = [ActionResult(digest_of(b"%d" % n), 1, "e", 1, 1, {}, {}) for n in range(20)]
    for result in results:
        await cache.publish("ns-a", result)
    blob = b"x" * 300_000
    await blobs_of(store).put(digest_of(blob), blob)
    fill(small_disk / "ballast")
    with pytest.raises(StoreFullError):
        await store.records.write("actions/s/small", b"small" * 2000)

    async def nothing() -> dict[str, set[Digest]]:
        return {}

    collector = Collector(
        store.sweepable_blobs, store.sweepable_records, store.records, grace_s=-1, result_ttl_s=0
    )
    done = await collector.collect(nothing, dry_run=False)
    assert (done.deleted, done.deleted_bytes) == (1, len(blob))
    assert [k async for k in store.records.keys("actions/ns-a/")] == []


@pytest.mark.slow
async def test_a_full_cache_disk_prevents_caching_but_not_reading(
    small_disk: Path, tmp_path: Path
) -> None:
    behind = open_store(tmp_path / "behind")
    await blobs_of(behind).put(digest_of(TOO_MUCH), TOO_MUCH)
    disk = BlobCache(small_disk / "cache", budget_bytes=1 << 30)
    cache = blobs_of(CachingViews(behind, disk))
    assert await cache.get(digest_of(TOO_MUCH)) == TOO_MUCH
    assert await cache.fetch(digest_of(TOO_MUCH), tmp_path / "target") == len(TOO_MUCH)
    assert disk.index.cached_sizes() == {}
    assert list((small_disk / "cache" / ".tmp").iterdir()) == []


def fill(ballast: Path) -> None:
    """Leaves less than a page free."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


async def nothing_is_left(store: Store, directory: Path) -> None:
    digest = digest_of(TOO_MUCH)
    assert await blobs_of(store).missing([digest]) == {digest}
    small = await store.records.read("runs/u/small")
    assert small is None or small.data == b"s"
    assert await store.records.read("runs/u/spec") is None
    assert await store.records.read("actions/s/large") is None
    log = directory / "actions" / "log"
    assert not log.exists() or not log.stat().st_size
    assert list((directory / ".tmp").iterdir()) == []
