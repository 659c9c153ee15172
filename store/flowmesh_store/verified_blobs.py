"""A decorator that verifies every read by its digest, for backends that do not."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from flowmesh_core.errors import BlobCorruptError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobArea, CorruptBlobDeleter
from flowmesh_store.hashing import digest_of, require
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.spool import SpooledFile, SpoolWriter


class VerifyingBlobs:
    """Verifies reads, and deletes a blob that was corrupt in two reads.

    The first bad read may be the network's fault. After the second the blob is deleted, so that it
    counts as missing and can be put again.
    """

    def __init__(self, inner: BlobArea, discarding: CorruptBlobDeleter) -> None:
        """Wraps a store.

        Args:
            inner: the blobs of a scope.
            discarding: deletes its corrupt blobs; often the same object.
        """
        self._inner = inner
        self._discarding = discarding

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`, verified."""
        for _ in range(2):
            data = await self._inner.get(digest)
            found = digest_of(data)
            if found == digest:
                return data
        await self._discarding.discard(digest)
        require(found, digest, f"cas/{digest}")
        return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`."""
        await self._inner.put(digest, data)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        return await self._inner.missing(digests, sizes)

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`."""
        try:
            return await self._inner.fetch(digest, target)
        except BlobCorruptError:
            pass
        try:
            return await self._inner.fetch(digest, target)
        except BlobCorruptError:
            await self._discarding.discard(digest)
            raise

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return self._inner.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        await self._inner.put_spooled(spooled)

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """As :meth:`BlobArea.copy_from`."""
        return await self._inner.copy_from(scope, digest)
