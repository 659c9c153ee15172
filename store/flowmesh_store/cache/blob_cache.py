"""A directory of cached blobs with a budget, which all views of a worker's store share.

The worker agent owns the directory. The least recently used blobs are evicted first; pinned ones
stay, even beyond the budget. A blob lies here once, whatever scopes it was read in, and the cache
knows for which: see :class:`CachingBlobs`. After a restart it knows none.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flowmesh_core.errors import StoreFullError
from flowmesh_core.units import Digest
from flowmesh_store.cache.lru_index import CacheIndex
from flowmesh_store.filesystem import FilesystemBlobs, FilesystemSweep, StoreRoot
from flowmesh_store.spool import SpooledFile

_AREA = "cache"
"""The one area of the directory."""
_ANY_AGE = float("-inf")
_Mark = tuple[int, int, int]
_MISSING: _Mark = (0, 0, 0)
_NO_MARK: _Mark = (0, 0, -1)


@dataclass(slots=True)
class _DigestLock:
    """The lock of one digest; it exists while ``users`` tasks have it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class BlobCache:
    """Verified blobs on the local disk.

    Attributes:
        files: reads and writes them.
        index: sizes, order of use, pins.
        root: the directory.
    """

    def __init__(self, directory: Path, *, budget_bytes: int) -> None:
        """Indexes the blobs that an earlier process left in the directory.

        Args:
            directory: used by this object only; created if missing.
            budget_bytes: the most bytes to cache.

        Raises:
            StoreError, StoreFullError, StoreUnavailableError: the directory cannot be used.
        """
        self.root = StoreRoot(directory)
        self.root.discard_temporary(older_than_s=_ANY_AGE)
        self.files = FilesystemBlobs(self.root, _AREA)
        self.index = CacheIndex(budget_bytes)
        self._sweep = FilesystemSweep(self.root)
        self._locks: dict[Digest, _DigestLock] = {}
        self._verified: dict[Digest, _Mark] = {}
        self._readable: defaultdict[Digest, set[tuple[str, ...]]] = defaultdict(set)
        for blob in sorted(self._sweep.scan(), key=lambda b: b.age_s, reverse=True):
            for evicted in self.index.add(blob.digest, blob.size_bytes):
                self.root.remove(self.files.path(evicted))

    def is_readable(self, digest: Digest, scopes: tuple[str, ...]) -> bool:
        """Whether a blob was read in these scopes, or lies in one of them for sure."""
        known = self._readable.get(digest)
        if not known:
            return False
        return scopes in known or any((scope,) in known for scope in scopes)

    def note_readable(self, digest: Digest, scopes: Sequence[str]) -> None:
        """Records that one of these scopes has a cached blob."""
        if digest in self.index:
            self._readable[digest].add(tuple(scopes))

    async def is_intact(self, digest: Digest) -> bool:
        """Whether a blob is cached, and its file unchanged since it was verified."""
        if digest not in self.index:
            return False
        if self._verified.get(digest, _NO_MARK) != self._mark(digest):
            await self.files.discard(digest)
        if await self.files.missing([digest]):
            self.forget(digest)
            return False
        self.use(digest)
        self._verified[digest] = self._mark(digest)
        return True

    async def adopt(self, spooled: SpooledFile) -> None:
        """Caches a file that was verified while it was written."""
        await self.files.put_spooled(spooled)
        self._verified[spooled.digest] = self._mark(spooled.digest)
        await self.add(spooled.digest, spooled.size_bytes)

    async def cache(self, digest: Digest, data: bytes | Path, size_bytes: int) -> None:
        """Caches content that fits the budget; on a full disk it is left out."""
        if size_bytes > self.index.budget_bytes:
            return
        with suppress(StoreFullError):
            await self.files.put(digest, data)
            await self.add(digest, size_bytes)

    async def add(self, digest: Digest, size_bytes: int) -> None:
        """Adds a stored file to the index, and evicts what exceeds the budget."""
        await self.remove(self.index.add(digest, size_bytes))

    async def remove(self, evicted: Iterable[Digest]) -> None:
        """Deletes the files of evicted blobs."""
        for digest in evicted:
            self._verified.pop(digest, None)
            self._readable.pop(digest, None)
            await self._sweep.delete(_AREA, digest, older_than_s=_ANY_AGE)

    async def delete(self, digests: Iterable[Digest]) -> None:
        """Deletes blobs; those that are pinned when they are released."""
        await self.remove(self.index.doom(digests))

    def use(self, digest: Digest) -> None:
        """Marks a blob as the most recently used."""
        self.index.use(digest)
        with suppress(OSError):
            os.utime(self.files.path(digest))  # so that the order survives a restart

    def forget(self, digest: Digest) -> None:
        """Drops a blob whose file is missing or damaged from the index."""
        self.index.drop(digest)
        self._verified.pop(digest, None)
        self._readable.pop(digest, None)

    @asynccontextmanager
    async def locked(self, digest: Digest) -> AsyncIterator[None]:
        """Lets one reader at a time load a blob."""
        entry = self._locks.setdefault(digest, _DigestLock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._locks[digest]

    def _mark(self, digest: Digest) -> _Mark:
        """Returns what changes when the file is written to; it is verified again only then."""
        with suppress(OSError):
            status = os.stat(self.files.path(digest))
            return status.st_ino, status.st_size, status.st_mtime_ns
        return _MISSING
