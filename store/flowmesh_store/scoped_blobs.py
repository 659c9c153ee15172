"""A view of a store's blobs: written to one scope, read from several.

Each scope has a blob area of its own, so a digest alone reads nothing: what a manifest names is
found only where the reader's scopes have it (ADR 43).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from flowmesh_core.errors import BlobCorruptError, LostBlobError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import BlobArea, not_found
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.spool import SpooledFile, SpoolWriter

_COPIES_AT_ONCE = 16
_Read = TypeVar("_Read")


class ScopedBlobs:
    """Implements :class:`BlobView` over the areas of a store."""

    def __init__(self, area: Callable[[str], BlobArea], write: str, read: Sequence[str]) -> None:
        """Opens the areas.

        Args:
            area: returns the blobs of a scope.
            write: where blobs are put.
            read: where they are looked for, in this order.
        """
        self._areas = {scope: area(scope) for scope in dict.fromkeys((*read, write))}
        self._read = tuple(self._areas[scope] for scope in dict.fromkeys(read))
        self._write = self._areas[write]
        self._sources = tuple(scope for scope in dict.fromkeys(read) if scope != write)

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`; the first scope that has it right."""
        return await self._first(digest, lambda area: area.get(digest))

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`; the first scope that has it right."""
        return await self._first(digest, lambda area: area.fetch(digest, target))

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`: those that no read scope has."""
        left = set(digests)
        for area in self._read:
            if not left:
                break
            left = await area.missing(left, sizes)
        return left

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`, into the write scope."""
        await self._write.put(digest, data)

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return self._write.spool(expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`, into the write scope."""
        await self._write.put_spooled(spooled)

    async def copy(self, digests: Iterable[Digest]) -> set[Digest]:
        """As :meth:`BlobView.copy`."""
        lacking = await self._write.missing(set(digests))
        limit = asyncio.Semaphore(_COPIES_AT_ONCE)

        async def found(digest: Digest) -> bool:
            async with limit:
                for scope in self._sources:
                    if await self._write.copy_from(scope, digest):
                        return True
                return False

        ordered = sorted(lacking)
        answers = await asyncio.gather(*map(found, ordered))
        return {digest for digest, done in zip(ordered, answers, strict=True) if not done}

    async def _first(self, digest: Digest, read: Callable[[BlobArea], Awaitable[_Read]]) -> _Read:
        lost: LostBlobError | None = None
        for area in self._read:
            try:
                return await read(area)
            except LostBlobError as error:
                # That a scope's copy is corrupt says more than that another scope has none.
                if lost is None or isinstance(error, BlobCorruptError):
                    lost = error
        raise lost or not_found(digest, "no scope to read")
