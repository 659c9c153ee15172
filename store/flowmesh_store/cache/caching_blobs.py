"""A disk cache in front of a remote store, so that inputs are local to the engines.

The worker agent owns its directory. Content is verified when it is cached and when it is read. The
least recently used blobs are evicted first; pinned ones stay, even beyond the budget. On a full
disk blobs are read without being cached.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError, StoreFullError
from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import temporary_name
from flowmesh_store.blobs import Blobs
from flowmesh_store.cache.lru_index import CacheIndex
from flowmesh_store.filesystem import FilesystemBlobs, StoreRoot
from flowmesh_store.spool import SpooledFile, SpoolWriter

_ANY_AGE = float("-inf")
_Mark = tuple[int, int, int]
_MISSING: _Mark = (0, 0, 0)
_NO_MARK: _Mark = (0, 0, -1)


@dataclass(slots=True)
class _DigestLock:
    """The lock of one digest; it exists while ``users`` tasks have it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class CachingBlobs:
    """Blobs that are read once from the inner store and then from a directory with a budget."""

    def __init__(self, inner: Blobs, directory: Path, *, budget_bytes: int) -> None:
        """Indexes the blobs that an earlier process left in the directory.

        Args:
            inner: the store, which decides what exists.
            directory: used by this object only; created if missing.
            budget_bytes: the most bytes to cache.

        Raises:
            StoreError, StoreFullError, StoreUnavailableError: the directory cannot be used.
        """
        self._inner = inner
        self._root = StoreRoot(directory)
        self._root.discard_temporary(older_than_s=_ANY_AGE)
        self._local = FilesystemBlobs(self._root)
        self._index = CacheIndex(budget_bytes)
        self._locks: dict[Digest, _DigestLock] = {}
        self._verified: dict[Digest, _Mark] = {}
        for blob in sorted(self._local.scan(), key=lambda b: b.age_s, reverse=True):
            for evicted in self._index.add(blob.digest, blob.size_bytes):
                self._root.remove(self._local.path(evicted))

    def cached_sizes(self) -> dict[Digest, int]:
        """Returns the cached digests with sizes in bytes, for the worker's report of locality."""
        return self._index.cached_sizes()

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`; concurrent readers of one blob load it once."""
        async with self._locked(digest):
            if digest in self._index:
                try:
                    data = await self._local.get(digest)
                except (BlobNotFoundError, BlobCorruptError):
                    self._forget(digest)
                else:
                    self._use(digest)
                    return data
            data = await self._inner.get(digest)
            await self._cache(digest, data, len(data))
            return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`; also caches the blob, which is likely to be read here next."""
        await self._inner.put(digest, data)
        size = os.stat(data).st_size if isinstance(data, Path) else len(data)
        await self._cache(digest, data, size)

    async def missing(self, digests: Iterable[Digest]) -> set[Digest]:
        """As :meth:`BlobStore.missing`: what the inner store lacks, cached or not."""
        return await self._inner.missing(digests)

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        try:
            async with self.pinned(digest):
                return await self._local.fetch(digest, target)
        except BlobCorruptError:
            # It was damaged on this disk between two reads; the inner store has the right one.
            self._forget(digest)
            return await self._inner.fetch(digest, target)
        except StoreFullError:
            return await self._inner.fetch(digest, target)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return self._local.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`; caches the file by a second hard link."""
        link = self._root.temporary / temporary_name()
        with suppress(OSError):
            os.link(spooled.path, link)
        try:
            await self._inner.put_spooled(spooled)
            if link.exists():
                await self._local.put_spooled(SpooledFile(link, spooled.digest, spooled.size_bytes))
                await self._add_to_index(spooled.digest, spooled.size_bytes)
        finally:
            link.unlink(missing_ok=True)

    @asynccontextmanager
    async def pinned(self, digest: Digest) -> AsyncIterator[Path]:
        """Yields the path of the cached blob, which stays until the block ends; read-only.

        Raises:
            BlobNotFoundError, BlobCorruptError, StoreFullError, StoreUnavailableError.
        """
        self._index.pin(digest)
        try:
            async with self._locked(digest):
                await self._ensure(digest)
            yield Path(self._local.path(digest))
        finally:
            await self._remove(self._index.unpin(digest))

    async def _ensure(self, digest: Digest) -> None:
        if digest in self._index:
            if self._verified.get(digest, _NO_MARK) != self._mark(digest):
                await self._local.discard(digest)
            if not await self._local.missing([digest]):
                self._use(digest)
                self._verified[digest] = self._mark(digest)
                return
            self._forget(digest)
        partial = self._root.temporary / temporary_name()
        try:
            size = await self._inner.fetch(digest, partial)
            await self._local.put_spooled(SpooledFile(partial, digest, size))
        finally:
            partial.unlink(missing_ok=True)
        self._verified[digest] = self._mark(digest)
        await self._add_to_index(digest, size)

    async def _cache(self, digest: Digest, data: bytes | Path, size_bytes: int) -> None:
        if size_bytes > self._index.budget_bytes:
            return
        with suppress(StoreFullError):
            await self._local.put(digest, data)
            await self._add_to_index(digest, size_bytes)

    async def _add_to_index(self, digest: Digest, size_bytes: int) -> None:
        await self._remove(self._index.add(digest, size_bytes))

    async def _remove(self, evicted: Iterable[Digest]) -> None:
        for digest in evicted:
            self._verified.pop(digest, None)
            await self._local.delete(digest, older_than_s=_ANY_AGE)

    def _use(self, digest: Digest) -> None:
        self._index.use(digest)
        with suppress(OSError):
            os.utime(self._local.path(digest))  # so that the order survives a restart

    def _forget(self, digest: Digest) -> None:
        self._index.drop(digest)
        self._verified.pop(digest, None)

    def _mark(self, digest: Digest) -> _Mark:
        """Returns what changes when the file is written to; it is verified again only then."""
        with suppress(OSError):
            status = os.stat(self._local.path(digest))
            return status.st_ino, status.st_size, status.st_mtime_ns
        return _MISSING

    @asynccontextmanager
    async def _locked(self, digest: Digest) -> AsyncIterator[None]:
        entry = self._locks.setdefault(digest, _DigestLock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._locks[digest]
