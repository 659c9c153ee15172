"""A decorator that retries before it reports a needed blob as missing.

A server may answer once that a blob is missing which it has: behind a cache, during a failover. A
run must neither fail nor repeat work for that. Workers read inputs through this decorator, and the
control plane checks a run's outputs with it. Callers that expect a missing blob use the store
directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobView, BlobViews
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.spool import SpooledFile, SpoolWriter
from flowmesh_store.store import Store

PAUSES_S = (1.0, 4.0)
"""Pauses before the second and the third try."""

_Read = TypeVar("_Read")


class RetryingBlobs:
    """Blobs that are looked for three times, over five seconds, before they count as missing."""

    def __init__(
        self, inner: BlobView, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Wraps a store.

        Args:
            inner: a view of the store.
            sleep: waits for a number of seconds.
        """
        self._inner = inner
        self._sleep = sleep

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`."""
        return await self._read(digest, lambda: self._inner.get(digest))

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        return await self._read(digest, lambda: self._inner.fetch(digest, target))

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        found = await self._inner.missing(digests, sizes)
        for pause_s in PAUSES_S:
            if not found:
                break
            await self._sleep(pause_s)
            found = await self._inner.missing(found, sizes)
        return found

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`."""
        await self._inner.put(digest, data)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return self._inner.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        await self._inner.put_spooled(spooled)

    async def copy(self, digests: Iterable[Digest]) -> set[Digest]:
        """As :meth:`BlobView.copy`."""
        lost = await self._inner.copy(digests)
        for pause_s in PAUSES_S:
            if not lost:
                break
            await self._sleep(pause_s)
            lost = await self._inner.copy(lost)
        return lost

    async def _read(self, digest: Digest, read: Callable[[], Awaitable[_Read]]) -> _Read:
        try:
            return await read()
        except BlobNotFoundError as e:
            first = e
        for pause_s in PAUSES_S:
            await self._sleep(pause_s)
            # Cheap, and not answered by a cache that has stored the "not found" of a read.
            if await self._inner.missing([digest]):
                continue
            try:
                return await read()
            except BlobNotFoundError:
                continue
        raise first


class RetryingViews:
    """Views of a store with retries."""

    def __init__(self, store: BlobViews) -> None:
        self._store = store

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> RetryingBlobs:
        """As :meth:`BlobViews.view`."""
        return RetryingBlobs(self._store.view(write=write, read=read, token=token))


def with_retries(store: Store) -> BlobViews:
    """Returns a store's views, with retries for a bucket; a directory needs none."""
    return RetryingViews(store) if store.url.startswith("s3:") else store
