"""Blobs that are put by requests of others: whether they are stored, and whether they stay.

A worker puts blobs on the condition that there is no object, so it can neither renew an old blob
nor put one in place of an object that was emptied (``blobs``). The blob service sees to both.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from flowmesh_core.errors import BlobNotFoundError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import DEFAULT_GRACE_S
from flowmesh_store.keys import area_prefix, blob_name
from flowmesh_store.s3.blobs import EMPTY, S3Blobs
from flowmesh_store.s3.copier import BlobCopier
from flowmesh_store.s3.errors import blobs_error

_DISCARDS_AT_ONCE = 2
"""Each reads a whole blob."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Where a blob is not stored.

    Attributes:
        etag: of the emptied object in its place; empty where there is none.
    """

    etag: str = ""


class StoredBlobs:
    """Finds out what lies in the place of a blob."""

    def __init__(
        self,
        store: S3Store,
        area: Callable[[str], S3Blobs],
        copier: BlobCopier,
        *,
        where: str,
        grace_s: float = DEFAULT_GRACE_S,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Keeps the arguments.

        Args:
            store: the client, for the bucket and prefix.
            area: returns the blobs of a scope.
            copier: renews blobs.
            where: the bucket's address, for errors.
            grace_s: the collector's grace; a blob older than half of it is renewed.
            now: the time, comparable with the server's.
        """
        self._store = store
        self._area = area
        self._copier = copier
        self._where = where
        self._renew_after_s = grace_s / 2
        self._now = now
        self._discards = asyncio.Semaphore(_DISCARDS_AT_ONCE)

    async def find(self, scope: str, digest: Digest, size_bytes: int) -> Placeholder | None:
        """Returns None where the blob is stored, which renews it if it is old.

        Args:
            scope: where it should lie.
            digest: of its content.
            size_bytes: what the caller takes for its size; content of another size is verified.

        Raises:
            StoreUnavailableError, StoreError: the server did not answer, or refused.
        """
        found = await self._head(scope, digest)
        if found is not None and found[0] != size_bytes and found[0]:
            await self.discard(scope, digest)
            found = await self._head(scope, digest)
        if found is None or (not found[0] and digest != EMPTY):
            return Placeholder("" if found is None else found[2])
        age_s = found[1]
        if age_s >= self._renew_after_s and not await self._copier.renew(self._key(scope, digest)):
            return Placeholder()
        return None

    async def vacancy(self, scope: str, digest: Digest) -> Placeholder | None:
        """Returns what a blob may be put in place of; None where there is one, right or not.

        Raises:
            StoreUnavailableError, StoreError: the server did not answer, or refused.
        """
        found = await self._head(scope, digest)
        if found is None:
            return Placeholder()
        return Placeholder(found[2]) if not found[0] and digest != EMPTY else None

    async def discard(self, scope: str, digest: Digest) -> None:
        """Reads a blob, and empties it if its content has another digest."""
        async with self._discards:
            with suppress(BlobNotFoundError):
                await self._area(scope).discard(digest)

    async def copy(self, source: str, target: str, digest: Digest) -> bool:
        """Copies a blob from a scope to another, unless that has it.

        Returns:
            Whether the other scope has the blob now.
        """
        if await self.vacancy(target, digest) is None:
            return True  # what is stored stays: the copy may have another content
        return await self._area(target).copy_from(source, digest)

    def _key(self, scope: str, digest: Digest) -> str:
        return area_prefix(scope) + blob_name(digest)

    async def _head(self, scope: str, digest: Digest) -> tuple[int, float, str] | None:
        """Returns size in bytes, age in seconds and etag of an object."""
        try:
            meta = await obstore.head_async(self._store, self._key(scope, digest))
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise blobs_error(error, self._where) from error
        age_s = (self._now() - meta["last_modified"]).total_seconds()
        return meta["size"], age_s, meta["e_tag"] or ""
