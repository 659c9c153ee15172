"""Counts what comes from the store while attempts fetch, for what their ends report.

The agent says when an attempt fetches; :class:`CountedViews`, around the store, says what came.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobView, BlobViews
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.spool import SpooledFile, SpoolWriter


@dataclass(slots=True)
class _Count:
    since_s: float
    fetched_bytes: float = 0.0


class StoreFetchCounter:
    """Implements the agent's port ``FetchCounter``."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._counts: dict[str, _Count] = {}

    def now_s(self) -> float:
        """Returns the time of the clock that ``received`` goes by."""
        return self._now_s()

    def begin(self, attempt_id: str) -> None:
        """As ``FetchCounter.begin``."""
        self._counts[attempt_id] = _Count(self._now_s())

    def end(self, attempt_id: str) -> int:
        """As ``FetchCounter.end``; a blob of which the rest is still to come is not counted."""
        count = self._counts.pop(attempt_id, None)
        return round(count.fetched_bytes) if count is not None else 0

    def received(self, size_bytes: int, since_s: float) -> None:
        """Counts a blob that has come now, and was asked for at ``since_s``.

        An attempt that began to fetch later gets its part, as if the bytes had come evenly: else
        one that waits for the end of another's fetch would report a network that is too quick.
        """
        took_s = self._now_s() - since_s
        for count in self._counts.values():
            late_s = max(0.0, count.since_s - since_s)
            count.fetched_bytes += size_bytes * (1.0 - late_s / took_s if late_s else 1.0)


class CountedViews:
    """Views of a store that count what is read through them."""

    def __init__(self, store: BlobViews, counter: StoreFetchCounter) -> None:
        self._store = store
        self._counter = counter

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> "CountedBlobs":
        """As :meth:`BlobViews.view`."""
        return CountedBlobs(self._store.view(write=write, read=read, token=token), self._counter)


class CountedBlobs:
    """Blobs that are counted when they have been read."""

    def __init__(self, inner: BlobView, counter: StoreFetchCounter) -> None:
        self._inner = inner
        self._counter = counter

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`."""
        since_s = self._counter.now_s()
        data = await self._inner.get(digest)
        self._counter.received(len(data), since_s)
        return data

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        since_s = self._counter.now_s()
        size_bytes = await self._inner.fetch(digest, target)
        self._counter.received(size_bytes, since_s)
        return size_bytes

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`."""
        await self._inner.put(digest, data)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        return await self._inner.missing(digests, sizes)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return self._inner.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        await self._inner.put_spooled(spooled)

    async def copy(self, digests: Iterable[Digest]) -> set[Digest]:
        """As :meth:`BlobView.copy`."""
        return await self._inner.copy(digests)
