"""A store in memory, for tests, simulations and temporary runs."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path

from flowmesh_core.errors import ConditionFailedError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import not_found
from flowmesh_store.collection.sweep import StoredRecord
from flowmesh_store.hashing import digest_of, require
from flowmesh_store.keys import area_prefix, check_digest, check_key
from flowmesh_store.ports import NO_SIZES, Record, StoredBlob
from flowmesh_store.regular_files import read_regular
from flowmesh_store.spool import SpooledFile, SpoolWriter, verified_file


class MemoryContent:
    """The blobs of all scopes in a dictionary, by scope and digest."""

    def __init__(
        self, *, spool_dir: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Starts empty.

        Args:
            spool_dir: where outputs are spooled; by default the system's temporary directory.
            clock: seconds, for the age of blobs.
        """
        self.spool_dir = spool_dir or Path(tempfile.gettempdir())
        self.clock = clock
        self.stored: dict[tuple[str, Digest], tuple[bytes, float]] = {}

    async def blobs(self, scope: str = "") -> AsyncIterator[StoredBlob]:
        """As :meth:`Sweepable.blobs`."""
        now = self.clock()
        for (place, digest), (data, stored_at) in sorted(self.stored.items()):
            if scope in ("", place):
                yield StoredBlob(place, digest, len(data), max(0.0, now - stored_at))

    async def delete(self, scope: str, digest: Digest, *, older_than_s: float) -> bool:
        """As :meth:`Sweepable.delete`."""
        stored = self.stored.get((scope, digest))
        if stored is None or self.clock() - stored[1] < older_than_s:
            return False
        del self.stored[scope, digest]
        return True

    async def discard_unfinished(self, *, older_than_s: float) -> int:
        """As :meth:`Sweepable.discard_unfinished`; a dictionary has no unfinished writes."""
        return 0


class MemoryBlobs:
    """The blobs of one scope. ``get`` does not verify; see :class:`VerifyingBlobs`."""

    def __init__(self, content: MemoryContent, scope: str) -> None:
        """Keeps the arguments.

        Args:
            content: the blobs of all scopes.
            scope: the one that this object reads and writes.
        """
        self._where = f"memory:{area_prefix(scope)}"
        self._content = content
        self._scope = scope

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`, unverified."""
        stored = self._content.stored.get((self._scope, check_digest(digest)))
        if stored is None:
            raise not_found(digest, self._where)
        return stored[0]

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`; refuses content of another digest."""
        content = await asyncio.to_thread(read_regular, data) if isinstance(data, Path) else data
        require(digest_of(content), check_digest(digest), self._where)
        self._content.stored[self._scope, digest] = (bytes(content), self._content.clock())

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        stored, scope = self._content.stored, self._scope

        def has(digest: Digest) -> bool:
            data, _ = stored.get((scope, check_digest(digest)), (None, 0.0))
            return data is not None and len(data) == sizes.get(digest, len(data))

        return {d for d in digests if not has(d)}

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        data = await self.get(digest)
        with verified_file(target, digest, expected_bytes=len(data)) as writer:
            writer.write(data)
        return len(data)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return SpoolWriter(self._content.spool_dir, expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        try:
            await self.put(spooled.digest, spooled.path)
        finally:
            spooled.discard()

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """As :meth:`BlobArea.copy_from`; both scopes refer to the same bytes."""
        source = self._content.stored.get((scope, check_digest(digest)))
        if source is None:
            return False
        self._content.stored[self._scope, digest] = (source[0], self._content.clock())
        return True

    async def discard(self, digest: Digest) -> None:
        """As :meth:`CorruptBlobDeleter.discard`."""
        stored = self._content.stored.get((self._scope, digest))
        if stored is not None and digest_of(stored[0]) != digest:
            del self._content.stored[self._scope, digest]


class MemoryRecords:
    """Records in a dictionary."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """Starts empty.

        Args:
            clock: seconds, for the age of records.
        """
        self._clock = clock
        self._records: dict[str, tuple[Record, float]] = {}
        self._versions = itertools.count(1)

    async def read(self, key: str) -> Record | None:
        """As :meth:`RecordStore.read`."""
        stored = self._records.get(check_key(key))
        return None if stored is None else stored[0]

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """As :meth:`RecordStore.write`."""
        stored = self._records.get(check_key(key))
        if (None if stored is None else stored[0].etag) != if_match:
            raise ConditionFailedError(
                "the record is there" if if_match is None else "the record has changed",
                where=key,
                remedy="read it and decide again",
            )
        etag = str(next(self._versions))
        self._records[key] = (Record(bytes(data), etag), self._clock())
        return etag

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordStore.keys`."""
        for key in sorted(k for k in self._records if k.startswith(prefix)):
            yield key

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordFolders.folders`."""
        below = (key[len(prefix) :] for key in self._records if key.startswith(prefix))
        for name in sorted({key.partition("/")[0] for key in below if "/" in key}):
            yield name

    async def aged(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """As :meth:`SweepableRecords.aged`."""
        now = self._clock()
        for key, (record, stored_at) in sorted(self._records.items()):
            if key.startswith(prefix):
                yield StoredRecord(key, len(record.data), max(0.0, now - stored_at))

    async def erase_deleted(self) -> None:
        """As :meth:`SweepableRecords.erase_deleted`: nothing is left behind."""

    async def delete(self, key: str, *, older_than_s: float) -> bool:
        """As :meth:`SweepableRecords.delete`."""
        stored = self._records.get(key)
        if stored is None or self._clock() - stored[1] < older_than_s:
            return False
        del self._records[key]
        return True
