"""The blobs of one scope, read and put through presigned URLs.

The service discards corrupt blobs and renews old ones, since a worker puts a blob only where there
is none. A URL that has expired is asked for again.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path

import aiohttp

from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.protocol.blob_service import Method, UrlRequest
from flowmesh_core.units import Digest
from flowmesh_store.blob_service.access import SignedAccess
from flowmesh_store.blob_service.uploads import UploadSource, upload
from flowmesh_store.blobs import not_found
from flowmesh_store.hashing import digest_of, require
from flowmesh_store.keys import check_digest
from flowmesh_store.ordered_pieces import PIECE_BYTES, in_order
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import NO_SIZES
from flowmesh_store.regular_files import read_regular
from flowmesh_store.signed_objects import ObjectExistsError, is_partial, object_bytes
from flowmesh_store.spool import SpooledFile, SpoolWriter, verified_file

_EMPTY = digest_of(b"")
_SINGLE_BYTES = 16 << 20
_STREAM_BYTES = 1 << 20
_INLINE_BYTES = 64 << 10
_CONCURRENT_HEADS = 64
_PUTS_MAX = 3


class ServiceBlobs:
    """The blobs of one scope; ``get`` does not verify, see :class:`VerifyingBlobs`."""

    def __init__(
        self, access: SignedAccess, scope: str, token: str, *, spool_dir: Path | None = None
    ) -> None:
        """Keeps the arguments.

        Args:
            access: to service and server.
            scope: the one that this object reads and writes.
            token: of an attempt that may.
            spool_dir: where outputs are spooled; by default the system's temporary directory.
        """
        self._access = access
        self._scope = scope
        self._token = token
        self._spool_dir = spool_dir or Path(tempfile.gettempdir())

    async def get(self, digest: Digest) -> bytes:
        """As :meth:`BlobStore.get`, unverified."""

        async def read(url: str) -> bytes:
            async with self._access.objects.get(url) as response:
                return b"" if response is None else await response.read()

        data = await self._access.use(lambda: self._url("GET", digest), read)
        if not data and digest != _EMPTY:
            raise not_found(digest, self._where)
        return data

    async def put(self, digest: Digest, data: bytes | Path) -> None:
        """As :meth:`BlobStore.put`; refuses content of another digest (BlobCorruptError)."""
        if isinstance(data, Path):
            try:
                size = os.lstat(data).st_size
                if size > _SINGLE_BYTES:
                    await self._upload(digest, UploadSource(size, path=data))
                    return
                data = await asyncio.to_thread(read_regular, data)
            except OSError as error:
                raise store_error(error, str(data)) from error
        require(digest_of(data), check_digest(digest), self._where)
        if len(data) > _SINGLE_BYTES:
            await self._upload(digest, UploadSource(len(data), data=data))
        else:
            await self._put(digest, data)

    async def missing(
        self, digests: Iterable[Digest], sizes: Mapping[Digest, int] = NO_SIZES
    ) -> set[Digest]:
        """As :meth:`BlobStore.missing`."""
        limit = asyncio.Semaphore(_CONCURRENT_HEADS)

        async def absent(digest: Digest) -> Digest | None:
            async with limit:
                size = await self._access.use(
                    lambda: self._url("HEAD", digest), self._access.objects.size
                )
            if size is None or (not size and digest != _EMPTY):
                return digest
            return digest if size != sizes.get(digest, size) else None

        answers = await asyncio.gather(*(absent(check_digest(d)) for d in digests))
        return {d for d in answers if d is not None}

    async def fetch(self, digest: Digest, target: Path) -> int:
        """As :meth:`BlobFiles.fetch`; pieces of a large blob are read at the same time.

        A server gives one connection a part of what the worker's network carries: Amazon names
        85 to 90 MB/s of S3.
        """

        async def begin(url: str) -> tuple[str, int, bytes]:
            async with self._access.objects.get(url, (0, PIECE_BYTES)) as response:
                size = 0 if response is None else object_bytes(response)
                if response is None or (not size and digest != _EMPTY):
                    raise not_found(digest, self._where)
                if (response.content_length or 0) < size:
                    if first := await response.read():
                        return url, size, first
                    raise self._replaced(digest)
                with verified_file(target, digest, expected_bytes=size) as writer:
                    if size:
                        await _copy(response, writer)
                return url, size, b""

        url, size, first = await self._access.use(lambda: self._url("GET", digest), begin)
        if first:
            read = partial(self._piece, digest, url)
            rest = in_order(read, len(first), size, self._access.pieces)
            with verified_file(target, digest, expected_bytes=size) as writer:
                await asyncio.to_thread(writer.write, first)
                async with aclosing(rest):
                    async for piece in rest:
                        await asyncio.to_thread(writer.write, piece)
        return size

    async def _piece(self, digest: Digest, url: str, start: int, stop: int) -> bytes:
        """Returns a piece, read with a URL that others use too, or once that ends with its own."""
        urls = [url]

        async def ask() -> str:
            return urls.pop() if urls else await self._url("GET", digest)

        async def read(url: str) -> bytes:
            async with self._access.objects.get(url, (start, stop)) as response:
                if response is None:
                    raise not_found(digest, self._where)
                wanted_bytes = stop - start
                # Where all of a blob comes in place of a piece, it may be larger than memory.
                if is_partial(response) and response.content_length in (None, wanted_bytes):
                    data = await response.read()
                    if len(data) == wanted_bytes:
                        return data
            raise self._replaced(digest)

        return await self._access.use(ask, read)

    def _replaced(self, digest: Digest) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"the blob {digest} was replaced while it was read",
            where=self._where,
            remedy="try again",
        )

    def spool(self, *, expected_bytes: int = 0) -> SpoolWriter:
        """As :meth:`SpoolingBlobs.spool`."""
        return SpoolWriter(self._spool_dir, expected_bytes=expected_bytes)

    async def put_spooled(self, spooled: SpooledFile) -> None:
        """As :meth:`SpoolingBlobs.put_spooled`."""
        try:
            if spooled.size_bytes <= _SINGLE_BYTES:
                content = await asyncio.to_thread(read_regular, spooled.path)
                await self._put(spooled.digest, content)
            else:
                source = UploadSource(spooled.size_bytes, path=spooled.path)
                await self._upload(spooled.digest, source)
        finally:
            spooled.discard()

    async def copy_from(self, scope: str, digest: Digest) -> bool:
        """As :meth:`BlobArea.copy_from`; the service has the server copy."""
        return await self._access.service.copy(self._token, scope, digest)

    async def discard(self, digest: Digest) -> None:
        """As :meth:`CorruptBlobDeleter.discard`; the service reads it again and decides."""
        await self._access.service.discard(self._token, self._scope, digest)

    @property
    def _where(self) -> str:
        return f"{self._access.service.url} (scope {self._scope})"

    async def _url(self, method: Method, digest: Digest, size_bytes: int = 0) -> str:
        request = UrlRequest(method, self._scope, check_digest(digest), size_bytes)
        return await self._access.service.presigned_url(self._token, request)

    async def _put(self, digest: Digest, data: bytes) -> None:
        """Puts content whose digest was verified, unless it is stored already."""
        objects, service = self._access.objects, self._access.service
        try:
            await self._access.use(
                lambda: self._url("PUT", digest, len(data)),
                lambda url: objects.put(url, data, {"If-None-Match": "*"}),
            )
        except ObjectExistsError:
            pass
        else:
            return
        for _ in range(_PUTS_MAX):
            found = await service.existing(self._token, digest, len(data))
            if found.stored:
                return
            condition = {"If-Match": found.etag} if found.etag else {"If-None-Match": "*"}
            try:
                await objects.put(found.url, data, condition)
            except ObjectExistsError:
                continue
            return
        raise StoreUnavailableError(
            f"the blob {digest} was replaced again and again while it was put",
            where=self._where,
            remedy="try again",
        )

    async def _upload(self, digest: Digest, source: UploadSource) -> None:
        await upload(self._access, self._token, check_digest(digest), source)


async def _copy(response: aiohttp.ClientResponse, writer: SpoolWriter) -> None:
    async for piece in response.content.iter_chunked(_STREAM_BYTES):
        if len(piece) <= _INLINE_BYTES:
            writer.write(piece)
        else:
            await asyncio.to_thread(writer.write, piece)
