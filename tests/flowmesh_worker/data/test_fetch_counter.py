"""What comes from the store while attempts fetch is counted, also where they wait for others."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.blob_views import SCOPE, blobs_of

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.identity import digest_bytes
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.cache.caching_blobs import CachingViews
from flowmesh_worker.data.fetch_counter import CountedViews, StoreFetchCounter

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_blobs_count_for_every_attempt_that_fetches_when_they_come(clock: Clock) -> None:
    counter = StoreFetchCounter(clock)
    counter.begin("first")
    counter.received(100, 0.0)
    clock.now_s = 5.0
    counter.begin("second")
    clock.now_s = 6.0
    counter.received(10, 5.5)
    assert counter.end("first") == 110
    counter.received(1, 5.5)
    assert counter.end("second") == 11


def test_an_attempt_that_waits_for_the_rest_of_a_blob_has_the_rest_of_its_bytes(
    clock: Clock,
) -> None:
    counter = StoreFetchCounter(clock)
    counter.begin("fetches")
    clock.now_s = 75.0
    counter.begin("waits")
    clock.now_s = 100.0
    counter.received(1000, 0.0)
    assert (counter.end("fetches"), counter.end("waits")) == (1000, 250)


def test_an_attempt_that_does_not_fetch_has_nothing(clock: Clock) -> None:
    counter = StoreFetchCounter(clock)
    counter.received(100, 0.0)
    assert counter.end("unknown") == 0
    counter.begin("a")
    assert counter.end("a") == 0
    assert counter.end("a") == 0


async def test_what_is_on_the_disk_already_is_not_counted(world: "World", tmp_path: Path) -> None:
    data = b"x" * 1000
    digest = digest_bytes(data)
    await blobs_of(world.store).put(digest, data)
    counter = StoreFetchCounter()
    counted = CountedViews(world.store, counter)
    cache = BlobCache(tmp_path / "cache", budget_bytes=1 << 20)
    view = CachingViews(counted, cache).view(write=SCOPE, read=(SCOPE,))
    counter.begin("first")
    async with view.pinned(digest):
        pass
    assert counter.end("first") == 1000
    counter.begin("again")
    async with view.pinned(digest):
        pass
    assert await view.get(digest) == data
    assert counter.end("again") == 0


async def test_files_and_contents_count_and_a_blob_that_is_missing_does_not(
    world: "World", tmp_path: Path
) -> None:
    data = b"y" * 500
    digest = digest_bytes(data)
    counter = StoreFetchCounter()
    view = CountedViews(world.store, counter).view(write=SCOPE, read=(SCOPE,))
    counter.begin("a")
    with pytest.raises(BlobNotFoundError):
        await view.get(digest)
    await view.put(digest, data)
    assert await view.missing([digest]) == set()
    assert await view.get(digest) == data
    assert await view.fetch(digest, tmp_path / "file") == 500
    assert counter.end("a") == 1000
