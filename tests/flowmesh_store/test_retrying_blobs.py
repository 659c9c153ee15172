"""A blob that is needed is asked for again before it is missed."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.blob_views import SCOPE

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import not_found
from flowmesh_store.hashing import digest_of
from flowmesh_store.memory import MemoryBlobs, MemoryContent
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.retrying_blobs import PAUSES_S, RetryingBlobs, with_retries
from flowmesh_store.store import open_store

X = digest_of(b"x")


class Forgetful(MemoryBlobs):
    """A store that says of what it has that it is not there, for so many answers."""

    def __init__(self, false_answers: int) -> None:
        super().__init__(MemoryContent(), SCOPE)
        self.false_answers = false_answers
        self.asked: list[str] = []

    def _lies(self, how: str) -> bool:
        self.asked.append(how)
        self.false_answers -= 1
        return self.false_answers >= 0

    async def get(self, digest: Digest) -> bytes:
        if self._lies("get"):
            raise not_found(digest, "")
        return await super().get(digest)

    async def fetch(self, digest: Digest, target: Path) -> int:
        if self._lies("fetch"):
            raise not_found(digest, "")
        return await super().fetch(digest, target)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        asked = set(digests)
        return asked if self._lies("missing") else await super().missing(asked, sizes)


class Bench:
    def __init__(self, false_answers: int) -> None:
        self.store = Forgetful(false_answers)
        self.slept_s: list[float] = []
        self.blobs = RetryingBlobs(self.store, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


@pytest.mark.parametrize("way", ["get", "fetch"])
@pytest.mark.parametrize("false_answers", [0, 1, 2])
async def test_false_not_found_responses_are_retried(
    way: str, false_answers: int, tmp_path: Path
) -> None:
    bench = Bench(false_answers)
    await bench.blobs.put(X, b"x")
    if way == "get":
        assert await bench.blobs.get(X) == b"x"
    else:
        assert await bench.blobs.fetch(X, tmp_path / "target") == 1
    assert bench.slept_s == list(PAUSES_S[:false_answers])
    # Content first, then whether it is there, each time after a pause; content again if it is.
    asked = [how for how in bench.store.asked if how in (way, "missing")]  # fetch reads by get
    assert asked == [way, *["missing"] * false_answers, *[way] * bool(false_answers)]


@pytest.mark.parametrize("way", ["get", "fetch"])
async def test_content_that_is_missing_is_requested_three_times(way: str, tmp_path: Path) -> None:
    bench = Bench(3)
    await bench.blobs.put(X, b"x")  # it is there, and each of three answers denies it
    with pytest.raises(BlobNotFoundError):
        await (bench.blobs.get(X) if way == "get" else bench.blobs.fetch(X, tmp_path / "target"))
    assert bench.store.asked == [way, "missing", "missing"]
    assert bench.slept_s == list(PAUSES_S)


@pytest.mark.parametrize("way", ["get", "fetch"])
async def test_a_deleted_blob_is_reported_as_not_found_after_five_seconds(
    way: str, tmp_path: Path
) -> None:
    bench = Bench(0)
    with pytest.raises(BlobNotFoundError) as caught:
        await (bench.blobs.get(X) if way == "get" else bench.blobs.fetch(X, tmp_path / "target"))
    assert caught.value.digest == X
    assert bench.slept_s == list(PAUSES_S)
    assert sum(PAUSES_S) == 5.0
    assert bench.store.asked.count("missing") == 2
    assert bench.store.asked.count("get") == 1


@pytest.mark.parametrize("false_answers", [0, 1, 2])
async def test_a_blob_reported_as_missing_is_checked_again(false_answers: int) -> None:
    bench = Bench(false_answers)
    await bench.blobs.put(X, b"x")
    assert await bench.blobs.missing([X]) == set()
    assert len(bench.slept_s) == false_answers


async def test_a_blob_that_is_missing_three_times_is_missing() -> None:
    bench = Bench(0)
    assert await bench.blobs.missing([X]) == {X}
    assert bench.store.asked == ["missing"] * 3


def test_a_directory_store_needs_no_retries(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    assert with_retries(store) is store
