"""The local cache: what it saves, what leaves, what stays."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.blob_views import SCOPE, blobs_of
from tests.flowmesh_store.counting_meter import CountingMeter

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.cache import caching_blobs
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingBlobs, CachingViews
from flowmesh_store.cache.lru_index import CacheIndex
from flowmesh_store.hashing import digest_of
from flowmesh_store.metered import MeteredBlobs
from flowmesh_store.store import Store, open_store

KB = 1000


class Behind:
    """A store behind the cache, with a count of what was read from it."""

    def __init__(self, directory: Path) -> None:
        self.store: Store = open_store(directory / "behind")
        self.meter = CountingMeter()
        self.metered = self.store.with_areas(lambda area: MeteredBlobs(area, self.meter))

    @property
    def reads(self) -> int:
        return sum(
            total.count
            for (operation, _), total in self.meter.totals.items()
            if operation in ("blob.get", "blob.fetch")
        )

    @property
    def questions(self) -> int:
        return self.meter.totals["blob.missing", "ok"].count

    async def hold(self, size: int) -> Digest:
        data = os.urandom(size)
        await blobs_of(self.store).put(digest_of(data), data)
        return digest_of(data)


@pytest.fixture
def behind(tmp_path: Path) -> Behind:
    return Behind(tmp_path)


def views_over(behind: Behind, tmp_path: Path, budget: int = 100 * KB) -> CachingViews:
    return CachingViews(behind.metered, BlobCache(tmp_path / "cache", budget_bytes=budget))


class Cache(CachingBlobs):
    """The view of one scope, with its cache's sizes."""

    def cached_sizes(self) -> dict[Digest, int]:
        return self._cache.index.cached_sizes()


def cache_over(behind: Behind, tmp_path: Path, budget: int = 100 * KB) -> Cache:
    inner = behind.metered.view(write=SCOPE, read=(SCOPE,))
    disk = BlobCache(tmp_path / "cache", budget_bytes=budget)
    return Cache(inner, disk, write=SCOPE, read=(SCOPE,))


def cached_file(tmp_path: Path, digest: Digest) -> Path:
    return tmp_path / "cache" / "cas" / "cache" / digest[:2] / digest


async def test_the_second_read_of_any_kind_comes_from_the_cache(
    behind: Behind, tmp_path: Path
) -> None:
    cache = cache_over(behind, tmp_path)
    digest = await behind.hold(KB)
    data = await cache.get(digest)
    assert await cache.get(digest) == data
    assert await cache.fetch(digest, tmp_path / "target") == KB
    async with cache.pinned(digest) as path:
        assert path.read_bytes() == data
    assert behind.reads == 1
    assert cache.cached_sizes() == {digest: KB}


async def test_64_readers_at_once_load_a_blob_once(behind: Behind, tmp_path: Path) -> None:
    cache = cache_over(behind, tmp_path)
    digest = await behind.hold(80 * KB)
    gets = [cache.get(digest) for _ in range(32)]
    fetches = [cache.fetch(digest, tmp_path / f"t{i}") for i in range(32)]
    await asyncio.gather(*gets, *fetches)
    assert behind.reads == 1


async def test_the_least_recently_used_blob_is_evicted_first_and_the_budget_holds(
    behind: Behind, tmp_path: Path
) -> None:
    cache = cache_over(behind, tmp_path)
    a, b, c = [await behind.hold(40 * KB) for _ in range(3)]
    await cache.get(a)
    await cache.get(b)
    await cache.get(a)
    await cache.get(c)
    assert cache.cached_sizes() == {a: 40 * KB, c: 40 * KB}
    assert not cached_file(tmp_path, b).exists()
    assert cached_file(tmp_path, a).exists()


async def test_a_pinned_blob_stays_and_can_be_evicted_once_unpinned(
    behind: Behind, tmp_path: Path
) -> None:
    cache = cache_over(behind, tmp_path, budget=50 * KB)
    pinned, other = await behind.hold(40 * KB), await behind.hold(45 * KB)
    async with cache.pinned(pinned) as path:
        async with cache.pinned(pinned):
            await cache.get(other)
        assert path.exists()
        assert set(cache.cached_sizes()) == {pinned}
    huge = await behind.hold(90 * KB)
    async with cache.pinned(huge) as path:
        assert path.stat().st_size == 90 * KB
    assert huge not in cache.cached_sizes()
    assert not path.exists()


async def test_a_blob_damaged_on_the_local_disk_is_loaded_again(
    behind: Behind, tmp_path: Path
) -> None:
    digest = await behind.hold(KB)
    data = await blobs_of(behind.store).get(digest)
    for way in ("get", "fetch", "pinned", "lost"):
        cache = cache_over(behind, tmp_path)
        await cache.get(digest)
        if way == "lost":
            cached_file(tmp_path, digest).unlink()
        else:
            cached_file(tmp_path, digest).write_bytes(b"x" * KB)
        if way in ("get", "lost"):
            assert await cache.get(digest) == data
        elif way == "fetch":
            await cache.fetch(digest, tmp_path / "target")
            assert (tmp_path / "target").read_bytes() == data
        else:
            async with cache.pinned(digest) as path:
                assert path.read_bytes() == data


async def test_a_new_process_adopts_the_cached_blobs_in_order_of_use(
    behind: Behind, tmp_path: Path
) -> None:
    cache = cache_over(behind, tmp_path)
    a, b = await behind.hold(40 * KB), await behind.hold(40 * KB)
    await cache.get(a)
    await cache.get(b)
    os.utime(cached_file(tmp_path, b), (1, 1))
    (tmp_path / "cache" / ".tmp" / "left-by-a-crash").write_bytes(b"x")
    again = cache_over(behind, tmp_path)
    assert list(again.cached_sizes()) == [b, a]
    assert list((tmp_path / "cache" / ".tmp").iterdir()) == []
    assert set(cache_over(behind, tmp_path, budget=50 * KB).cached_sizes()) == {a}
    assert not cached_file(tmp_path, b).exists()


async def test_a_put_blob_is_cached_and_stored_in_the_backing_store(
    behind: Behind, tmp_path: Path
) -> None:
    cache = cache_over(behind, tmp_path)
    (tmp_path / "file").write_bytes(b"file")
    await cache.put(digest_of(b"bytes"), b"bytes")
    await cache.put(digest_of(b"file"), tmp_path / "file")
    with cache.spool() as writer:
        writer.write(b"spooled")
        spooled = writer.finish()
    await cache.put_spooled(spooled)
    for data in (b"bytes", b"file", b"spooled"):
        assert await blobs_of(behind.store).get(digest_of(data)) == data
        assert await cache.get(digest_of(data)) == data
    assert behind.reads == 0
    assert list((tmp_path / "cache" / ".tmp").iterdir()) == []


async def test_missing_asks_the_backing_store_and_not_the_cache(
    behind: Behind, tmp_path: Path
) -> None:
    cache = cache_over(behind, tmp_path)
    digest = await behind.hold(KB)
    await cache.get(digest)
    await behind.store.sweepable_blobs.delete(SCOPE, digest, older_than_s=float("-inf"))
    assert await cache.missing([digest]) == {digest}


async def test_an_absent_blob_is_a_miss_and_leaves_no_trace(behind: Behind, tmp_path: Path) -> None:
    cache = cache_over(behind, tmp_path)
    for read in (cache.get(digest_of(b"?")), cache.fetch(digest_of(b"?"), tmp_path / "target")):
        with pytest.raises(BlobNotFoundError):
            await read
    assert cache.cached_sizes() == {}
    assert list((tmp_path / "cache" / ".tmp").iterdir()) == []


async def read_by(way: str, view: CachingBlobs, digest: Digest, target: Path) -> int:
    if way == "get":
        return len(await view.get(digest))
    if way == "fetch":
        return await view.fetch(digest, target)
    async with view.pinned(digest) as path:
        return path.stat().st_size


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("way", ["get", "fetch", "pinned"])
async def test_the_cache_gives_a_scope_no_blob_that_the_store_would_refuse(
    behind: Behind, tmp_path: Path, way: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(caching_blobs, "REREAD_BYTES_MAX", KB - 1)
    views, digest = views_over(behind, tmp_path), await behind.hold(KB)
    mine, another = (views.view(write=s, read=(s,)) for s in (SCOPE, "ns-other"))
    assert await read_by(way, mine, digest, tmp_path / "mine") == KB
    for _ in range(2):
        with pytest.raises(BlobNotFoundError):
            await read_by(way, another, digest, tmp_path / "another")
    refused = (behind.reads, behind.questions)
    assert refused == ((1, 2) if large else (3, 0))
    await behind.store.view(write="ns-other", read=(SCOPE,)).copy([digest])
    for _ in range(3):
        assert await read_by(way, another, digest, tmp_path / "another") == KB
    assert (behind.reads, behind.questions) == ((1, 3) if large else (4, 0))


@pytest.mark.parametrize("way", ["get", "fetch", "pinned"])
async def test_the_store_is_asked_the_same_whether_others_have_read_a_blob_here_or_not(
    behind: Behind, tmp_path: Path, way: str
) -> None:
    views = views_over(behind, tmp_path)
    observer = views.view(write="ns-observer", read=("ns-observer",))
    known, fresh = await behind.hold(KB), await behind.hold(KB)
    await behind.store.view(write="ns-observer", read=(SCOPE,)).copy([known, fresh])
    await read_by(way, views.view(write=SCOPE, read=(SCOPE,)), known, tmp_path / "first")
    asked = []
    for digest in (known, fresh, known, fresh):
        before = {name: total.count for name, total in behind.meter.totals.items()}
        await read_by(way, observer, digest, tmp_path / "target")
        after = {name: total.count for name, total in behind.meter.totals.items()}
        asked.append({n: c - before.get(n, 0) for n, c in after.items() if c != before.get(n, 0)})
    assert asked[0] == asked[1] != {}
    assert asked[2] == asked[3] == {}


async def test_a_blob_that_a_view_put_is_read_back_without_asking_the_store(
    behind: Behind, tmp_path: Path
) -> None:
    views = views_over(behind, tmp_path)
    await views.view(write="group-x", read=(SCOPE,)).put(digest_of(b"x"), b"x")
    assert await views.view(write=SCOPE, read=(SCOPE, "group-x")).get(digest_of(b"x")) == b"x"
    assert (behind.reads, behind.questions) == (0, 0)
    with pytest.raises(BlobNotFoundError):
        await views.view(write=SCOPE, read=(SCOPE,)).get(digest_of(b"x"))


async def test_a_new_process_checks_again_which_scopes_may_read_a_blob(
    behind: Behind, tmp_path: Path
) -> None:
    digest = await behind.hold(KB)
    await cache_over(behind, tmp_path).get(digest)
    again = views_over(behind, tmp_path)
    assert len(await again.view(write=SCOPE, read=(SCOPE,)).get(digest)) == KB
    assert (behind.reads, behind.questions) == (2, 0)
    with pytest.raises(BlobNotFoundError):
        await again.view(write="ns-other", read=("ns-other",)).get(digest)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "use", "drop", "pin", "unpin"]),
        st.integers(0, 5),
        st.integers(0, 60),
    ),
    max_size=40,
)


@given(STEPS)
def test_only_pinned_blobs_may_exceed_the_budget(steps: list[tuple[str, int, int]]) -> None:
    index = CacheIndex(100)
    pins = [0] * 6
    for action, number, size in steps:
        digest = Digest(str(number))
        if action == "add":
            index.add(digest, size)
        elif action == "pin":
            index.pin(digest)
            pins[number] += 1
        elif action == "unpin":
            if pins[number]:
                index.unpin(digest)
                pins[number] -= 1
        elif action == "use":
            index.use(digest)
        else:
            index.drop(digest)
        held = index.cached_sizes()
        assert index.used_bytes == sum(held.values())
        unpinned = sum(s for d, s in held.items() if not pins[int(d)])
        assert index.used_bytes <= 100 or unpinned == 0


def test_a_cache_has_at_most_so_many_blobs_however_small_they_are() -> None:
    index, digests = CacheIndex(10**9, 3), [Digest(f"{n:064x}") for n in range(6)]
    index.pin(digests[0])
    assert [index.add(digest, 1) for digest in digests[:3]] == [[], [], []]
    assert index.add(digests[3], 1) == [digests[1]], "the least recently used one is pinned"
    index.use(digests[2])
    assert index.add(digests[4], 1) == [digests[3]]
    assert index.unpin(digests[0]) == []
    assert index.add(digests[5], 1) == [digests[0]]
    assert index.used_bytes == 3
