"""Blobs of a scope in an S3 bucket, accessed with obstore.

Workers may only get and put, so a corrupt blob is not deleted but emptied (with ``If-Match`` on the
version that was read). An empty object whose digest is not that of empty content counts as missing,
and the next put overwrites it.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from blake3 import blake3
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from flowmesh_core.errors import BlobCorruptError, StoreError
from flowmesh_core.units import Digest
from flowmesh_store.blobs import DEFAULT_GRACE_S, not_found
from flowmesh_store.hashing import digest_of, new_hasher, require
from flowmesh_store.keys import area_prefix, blob_name, check_digest
from flowmesh_store.ordered_pieces import PIECE_BYTES, PIECES_AT_ONCE, in_order
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.regular_files import open_regular, read_regular
from flowmesh_store.s3.copier import BlobCopier
from flowmesh_store.s3.errors import blobs_error, is_missing_bucket
from flowmesh_store.spool import SpooledFile, SpoolWriter, verified_file

if TYPE_CHECKING:
    from obstore import GetResult

EMPTY = digest_of(b"")
"""The digest of empty content."""
_SINGLE_BYTES = 8 << 20
_INLINE_BYTES = 64 << 10
_STREAM_BYTES = 4 << 20
_CONCURRENT_HEADS = 64


class S3Blobs:
    """The blobs of one scope; ``get`` does not verify, see :class:`VerifyingBlobs`."""

    def __init__(
        self,
        store: S3Store,
        scope: str,
        *,
        copier: BlobCopier,
        where: str,
        grace_s: float = DEFAULT_GRACE_S,
        spool_dir: Path | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Keeps the arguments.

        Args:
            store: the client, for the bucket and prefix.
            scope: the one that this object reads and writes.
            copier: copies between scopes.
            where: its address, for errors.
            grace_s: the collector's grace; a put renews a blob older than half of it.
            spool_dir: where outputs are spooled; by default the system's temporary directory.
            now: the time, comparable with the server's.
        """
        self._store = store
        self._prefix = area_prefix(scope)
        self._copier = copier
        self._where = where
        self._renew_after_s = grace_s / 2
        self._spool_dir = spool_dir or Path(tempfile.gettempdir())
        self._now = now
        self._pieces = asyncio.Semaphore(PIECES_AT_ONCE)

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`, unverified."""
        key = self._key(digest)
        try:
            result = await obstore.get_async(self._store, key)
            data = bytes(await result.bytes_async())
        except FileNotFoundError as error:
            raise self._absent(digest, error) from None
        except BaseError as error:
            raise blobs_error(error, f"{self._where}: {key}") from error
        if not data and digest != EMPTY:
            raise not_found(digest, self._where)
        return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`; refuses content of another digest (BlobCorruptError)."""
        if isinstance(data, Path):
            try:
                size = os.lstat(data).st_size
                if size > _SINGLE_BYTES:
                    await self._put_stream(digest, data, size)
                    return
                data = await asyncio.to_thread(read_regular, data)
            except OSError as error:
                raise store_error(error, str(data)) from error
        require(digest_of(data), check_digest(digest), self._where)
        await self._put_trusted(digest, data, len(data))

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        limit = asyncio.Semaphore(_CONCURRENT_HEADS)

        async def absent(digest: Digest) -> Digest | None:
            async with limit:
                found = await self._head(digest)
            if found is None or (not found[0] and digest != EMPTY):
                return digest
            return digest if found[0] != sizes.get(digest, found[0]) else None

        answers = await asyncio.gather(*(absent(check_digest(d)) for d in digests))
        return {d for d in answers if d is not None}

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`; pieces of a large blob are read at the same time."""
        key = self._key(digest)
        try:
            result = await obstore.get_async(self._store, key)
            size = result.meta["size"]
            if not size and digest != EMPTY:
                raise not_found(digest, self._where)
            pieces: AsyncGenerator[memoryview]
            if size <= PIECE_BYTES:
                pieces = _whole(result)
            else:
                del result  # the connection with the rest of the response
                pieces = in_order(partial(self._piece, key), 0, size, self._pieces)
            with verified_file(target, digest, expected_bytes=size) as writer:
                async with aclosing(pieces):
                    async for piece in pieces:
                        if len(piece) <= _INLINE_BYTES:
                            writer.write(piece)
                        else:
                            await asyncio.to_thread(writer.write, piece)
        except FileNotFoundError as error:
            raise self._absent(digest, error) from None
        except BaseError as error:
            raise blobs_error(error, f"{self._where}: {key}") from error
        return size

    async def _piece(self, key: str, start: int, stop: int) -> memoryview:
        return memoryview(await obstore.get_range_async(self._store, key, start=start, end=stop))

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return SpoolWriter(self._spool_dir, expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        try:
            if spooled.size_bytes <= _INLINE_BYTES:
                content: bytes | Path = _read(spooled.path)
            elif spooled.size_bytes <= _SINGLE_BYTES:
                content = await asyncio.to_thread(_read, spooled.path)
            else:
                content = spooled.path
            await self._put_trusted(spooled.digest, content, spooled.size_bytes)
        finally:
            spooled.discard()

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """As :meth:`BlobArea.copy_from`; the server copies."""
        source = area_prefix(scope) + blob_name(digest)
        found = await head(self._store, source, self._where, self._now())
        if found is None or (not found[0] and digest != EMPTY):
            return False
        return await self._copier.copy(source, self._key(digest), found[0])

    async def discard(self, digest: Digest) -> None:
        """As :meth:`CorruptBlobDeleter.discard`; empties the object, see the module."""
        found, etag = await self._digest(digest)
        if found in (digest, EMPTY):
            return
        try:
            await obstore.put_async(
                self._store, self._key(digest), b"", mode={"e_tag": etag}, use_multipart=False
            )
        except (PreconditionError, FileNotFoundError):
            return
        except BaseError as error:
            raise blobs_error(error, self._where) from error

    def _key(self, digest: Digest) -> str:
        return self._prefix + blob_name(digest)

    async def _head(self, digest: Digest) -> tuple[int, float] | None:
        return await head(self._store, self._key(digest), self._where, self._now())

    async def _digest(self, digest: Digest) -> tuple[Digest, str | None]:
        """Returns the digest of the content that lies in a blob's place, and its etag."""
        key, hasher = self._key(digest), new_hasher()
        try:
            result = await obstore.get_async(self._store, key)
            async for piece in result.stream(min_chunk_size=_STREAM_BYTES):
                await asyncio.to_thread(hasher.update, memoryview(piece))
        except FileNotFoundError as error:
            raise self._absent(digest, error) from None
        except BaseError as error:
            raise blobs_error(error, f"{self._where}: {key}") from error
        return Digest(hasher.hexdigest()), result.meta["e_tag"]

    def _absent(self, digest: Digest, error: FileNotFoundError) -> StoreError:
        if is_missing_bucket(error):
            return blobs_error(error, self._where)
        return not_found(digest, self._where)

    async def _holds(self, digest: Digest, size: int) -> bool:
        found = await self._head(digest)
        return found is not None and found[0] == size and found[1] < self._renew_after_s

    async def _put_trusted(self, digest: Digest, data: bytes | Path, size: int) -> None:
        """Uploads content whose digest was verified, unless a recent blob of it exists."""
        key = self._key(digest)
        try:
            if isinstance(data, bytes) and size <= _SINGLE_BYTES:
                # Most blobs are new; then this is the only round trip.
                with suppress(AlreadyExistsError):
                    await obstore.put_async(
                        self._store, key, data, mode="create", use_multipart=False
                    )
                    return
            if not await self._holds(digest, size):
                await obstore.put_async(self._store, key, data, use_multipart=size > _SINGLE_BYTES)
        except (BaseError, FileNotFoundError) as error:
            raise blobs_error(error, f"{self._where}: {key}") from error

    async def _put_stream(self, digest: Digest, source: Path, size: int) -> None:
        """Uploads a large file in parts; a wrong digest aborts it before the last part."""
        if await self._holds(digest, size):
            return
        pieces = _VerifiedPieces(source, digest)
        try:
            await obstore.put_async(self._store, self._key(digest), pieces.stream())
        except Exception as error:
            if pieces.error is not None:
                raise pieces.error from None
            if isinstance(error, (BaseError, FileNotFoundError)):
                raise blobs_error(error, self._where) from error
            raise


async def _whole(result: "GetResult") -> AsyncGenerator[memoryview]:
    async for chunk in result.stream(min_chunk_size=_STREAM_BYTES):
        yield memoryview(chunk)


async def head(store: S3Store, key: str, where: str, now: datetime) -> tuple[int, float] | None:
    """Returns size in bytes and age in seconds of a blob, or None where it is missing.

    Raises:
        StoreUnavailableError, StoreError: the server did not answer, or refused.
    """
    try:
        meta = await obstore.head_async(store, key)
    except FileNotFoundError:
        return None
    except BaseError as error:
        raise blobs_error(error, where) from error
    return meta["size"], (now - meta["last_modified"]).total_seconds()


class _VerifiedPieces:
    """The parts of a file; in place of the last one an error, if the file has another digest.

    Attributes:
        error: why the parts are not that file's; the client of the bucket hides it.
    """

    def __init__(self, source: Path, digest: Digest) -> None:
        self._source = source
        self._digest = digest
        self.error: StoreError | None = None

    async def stream(self) -> AsyncIterator[bytes]:
        hasher = blake3()
        try:
            descriptor, _ = open_regular(self._source)
        except StoreError as error:
            self.error = error
            raise
        try:
            piece = await asyncio.to_thread(_next_piece, descriptor, hasher)
            while piece:
                following = await asyncio.to_thread(_next_piece, descriptor, hasher)
                if not following:
                    self._check(Digest(hasher.hexdigest()))
                yield piece
                piece = following
        finally:
            os.close(descriptor)

    def _check(self, found: Digest) -> None:
        try:
            require(found, self._digest, str(self._source))
        except BlobCorruptError as error:
            self.error = error
            raise


def _next_piece(descriptor: int, hasher: blake3) -> bytes:
    piece = os.read(descriptor, _STREAM_BYTES)
    hasher.update(piece)
    return piece


def _read(path: Path) -> bytes:
    return read_regular(path)
