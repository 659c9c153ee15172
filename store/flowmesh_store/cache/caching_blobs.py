"""Views of a remote store behind a disk cache, so that inputs are local to the engines.

Content is verified when it is cached and when it is read. On a full disk blobs are read without
being cached. A blob is read from the store once for each view's scopes, also if it is cached for
others, so that neither an answer nor its time shows what others have read here (ADR 43). Of a large
blob the store is only asked whether the scopes have it.
"""

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError, StoreFullError
from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import temporary_name
from flowmesh_store.blobs import BlobView, BlobViews, not_found
from flowmesh_store.cache.blob_cache import BlobCache
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.spool import SpooledFile, SpoolWriter

REREAD_BYTES_MAX = 64 << 20
"""Larger blobs, files of models for the most part, are not read again for other scopes."""


class CachingViews:
    """Views of a store that share one cache."""

    def __init__(self, store: BlobViews, cache: BlobCache) -> None:
        """Keeps the arguments.

        Args:
            store: decides what exists, and for whom.
            cache: what was read from it.
        """
        self._store = store
        self._cache = cache

    def view(self, *, write: str, read: Sequence[str], token: str = "") -> "CachingBlobs":
        """As :meth:`BlobViews.view`."""
        inner = self._store.view(write=write, read=read, token=token)
        return CachingBlobs(inner, self._cache, write=write, read=read)


class CachingBlobs:
    """Blobs that are read once from a view of a store and then from the disk."""

    def __init__(
        self, inner: BlobView, cache: BlobCache, *, write: str, read: Sequence[str]
    ) -> None:
        """Keeps the arguments.

        Args:
            inner: the view.
            cache: shared with other views.
            write: the scope that the view writes to.
            read: the scopes that it reads.
        """
        self._inner = inner
        self._cache = cache
        self._write = write
        self._read = tuple(read)

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`; concurrent readers of one blob load it once."""
        cache = self._cache
        async with cache.locked(digest):
            if digest in cache.index and await self._may_use(digest):
                try:
                    data = await cache.files.get(digest)
                except (BlobNotFoundError, BlobCorruptError):
                    cache.forget(digest)
                else:
                    cache.use(digest)
                    return data
            data = await self._inner.get(digest)
            await cache.cache(digest, data, len(data))
            cache.note_readable(digest, self._read)
            return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`; also caches the blob, which is likely to be read here next."""
        await self._inner.put(digest, data)
        size = os.lstat(data).st_size if isinstance(data, Path) else len(data)
        await self._cache.cache(digest, data, size)
        self._cache.note_readable(digest, (self._write,))

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`: what the inner view lacks, cached or not."""
        return await self._inner.missing(digests, sizes)

    async def copy(self, digests: Iterable[Digest]) -> set[Digest]:
        """As :meth:`BlobView.copy`."""
        return await self._inner.copy(digests)

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        try:
            async with self.pinned(digest):
                return await self._cache.files.fetch(digest, target)
        except BlobCorruptError:
            # It was damaged on this disk between two reads; the inner view has the right one.
            self._cache.forget(digest)
            return await self._inner.fetch(digest, target)
        except StoreFullError:
            return await self._inner.fetch(digest, target)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return self._cache.files.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`; caches the file by a second hard link."""
        cache = self._cache
        link = cache.root.temporary / temporary_name()
        with suppress(OSError):
            os.link(spooled.path, link)
        try:
            await self._inner.put_spooled(spooled)
            if link.exists():
                copy = SpooledFile(link, spooled.digest, spooled.size_bytes)
                await cache.files.put_spooled(copy)
                await cache.add(spooled.digest, spooled.size_bytes)
                cache.note_readable(spooled.digest, (self._write,))
        finally:
            link.unlink(missing_ok=True)

    @asynccontextmanager
    async def pinned(self, digest: Digest) -> AsyncIterator[Path]:
        """Yields the path of the cached blob, which stays until the block ends; read-only.

        Raises:
            BlobNotFoundError, BlobCorruptError, StoreFullError, StoreUnavailableError.
        """
        cache = self._cache
        cache.index.pin(digest)
        try:
            async with cache.locked(digest):
                await self._ensure(digest)
            yield Path(cache.files.path(digest))
        finally:
            await cache.remove(cache.index.unpin(digest))

    async def _ensure(self, digest: Digest) -> None:
        cache = self._cache
        if digest in cache.index and await self._may_use(digest) and await cache.is_intact(digest):
            return
        partial = cache.root.temporary / temporary_name()
        try:
            size = await self._inner.fetch(digest, partial)
            await cache.adopt(SpooledFile(partial, digest, size))
        finally:
            partial.unlink(missing_ok=True)
        cache.note_readable(digest, self._read)

    async def _may_use(self, digest: Digest) -> bool:
        """Whether a cached blob is used as it is; else it is read again in this view's scopes.

        Raises:
            BlobNotFoundError: the store has it in none of the scopes.
        """
        if self._cache.is_readable(digest, self._read):
            return True
        if self._cache.index.size_bytes(digest) <= REREAD_BYTES_MAX:
            return False
        if await self._inner.missing([digest]):
            raise not_found(digest, f"scopes {', '.join(self._read)}")
        self._cache.note_readable(digest, self._read)
        return True
