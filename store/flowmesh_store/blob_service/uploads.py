"""Uploads of large blobs in parts, each put through a URL of its own.

The content is hashed as it is read; one of another digest is never completed.
"""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from flowmesh_core.errors import StoreError
from flowmesh_core.protocol.blob_service import UploadResponse
from flowmesh_core.units import Digest
from flowmesh_store.blob_service.access import SignedAccess
from flowmesh_store.hashing import new_hasher, require
from flowmesh_store.os_errors import store_error
from flowmesh_store.regular_files import open_regular

_PARTS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class UploadSource:
    """The content of an upload.

    Attributes:
        size_bytes: of all of it.
        data: the content, if it is in memory.
        path: the file that has it, otherwise.
    """

    size_bytes: int
    data: bytes = b""
    path: Path | None = None

    @property
    def where(self) -> str:
        """Where it lies, for errors."""
        return "memory" if self.path is None else str(self.path)

    async def piece(self, start: int, size: int) -> bytes:
        """Returns some bytes; fewer at the end.

        Raises:
            StoreError: the file cannot be read.
        """
        if self.path is None:
            return self.data[start : start + size]
        try:
            return await asyncio.to_thread(_read, self.path, start, size)
        except OSError as error:
            raise store_error(error, str(self.path)) from error


async def upload(access: SignedAccess, token: str, digest: Digest, source: UploadSource) -> None:
    """Uploads a blob unless it is stored already.

    Args:
        access: to service and server.
        token: of an attempt; the blob belongs to its write scope.
        digest: of the content.
        source: the content.

    Raises:
        BlobCorruptError: the content has another digest.
        StoreFullError, StoreUnavailableError, StoreError: the blob was not stored.
    """
    begun = await access.service.begin_upload(token, digest, source.size_bytes)
    if begun.stored:
        return
    parts = _Parts(access, token, digest, source, begun)
    try:
        etags = await parts.put_all()
        await access.service.complete_upload(token, digest, begun.upload_id, etags)
    except BaseException:
        with suppress(StoreError):  # the collector aborts uploads that stay
            await access.service.abort_upload(token, digest, begun.upload_id)
        raise


@dataclass(slots=True)
class _Parts:
    """The parts of one upload."""

    access: SignedAccess
    token: str
    digest: Digest
    source: UploadSource
    begun: UploadResponse
    _urls: dict[int, str] = field(default_factory=dict)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def put_all(self) -> tuple[str, ...]:
        """Reads, hashes and puts all parts; returns their etags."""
        self._urls = dict(enumerate(self.begun.urls, 1))
        size, step = self.source.size_bytes, self.begun.part_bytes
        hasher, limit = new_hasher(size), asyncio.Semaphore(_PARTS_AT_ONCE)
        tasks: list[asyncio.Task[str]] = []
        async with asyncio.TaskGroup() as group:
            for number, start in enumerate(range(0, size, step), 1):
                await limit.acquire()
                data = await self.source.piece(start, step)
                await asyncio.to_thread(hasher.update, data)
                task = group.create_task(self._put(number, data))
                task.add_done_callback(lambda _: limit.release())
                tasks.append(task)
        require(Digest(hasher.hexdigest()), self.digest, self.source.where)
        return tuple(task.result() for task in tasks)

    async def _put(self, number: int, data: bytes) -> str:
        return await self.access.use(
            lambda: self._url(number), lambda url: self.access.objects.put(url, data)
        )

    async def _url(self, number: int) -> str:
        """Returns the URL of a part, which is used once."""
        async with self._asking:
            if number not in self._urls:
                urls = await self.access.service.part_urls(
                    self.token, self.digest, self.source.size_bytes, self.begun.upload_id, number
                )
                self._urls |= dict(enumerate(urls, number))
            return self._urls.pop(number)


def _read(path: Path, start: int, size: int) -> bytes:
    descriptor, _ = open_regular(path)
    try:
        return os.pread(descriptor, size, start)
    finally:
        os.close(descriptor)
