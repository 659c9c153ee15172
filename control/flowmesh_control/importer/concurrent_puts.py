"""Puts the blobs of an upload into the store concurrently, as they are decoded."""

import asyncio
import contextlib
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

from flowmesh_core.errors import BlobCorruptError, LostBlobError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.atomic_files import temporary_name
from flowmesh_store.blobs import Blobs
from flowmesh_store.spool import SpooledFile

AT_ONCE = 16


class ConcurrentPuts:
    """A context of concurrent puts: leaving it waits for all, or cancels them on an error.

    A blob that exists already is read first, so that a damaged copy is found and replaced.
    """

    def __init__(self, blobs: Blobs, *, at_once: int = AT_ONCE) -> None:
        """Starts without puts.

        Args:
            blobs: where they go.
            at_once: how many run at a time; :meth:`add` waits for a free one.
        """
        self._blobs = blobs
        self._free_slots = asyncio.Semaphore(at_once)
        self._running: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None

    async def add(self, digest: Digest, data: bytes) -> None:
        """Starts a put; waits first while ``at_once`` puts are running.

        Raises:
            BlobCorruptError: the bytes have another digest.
            StoreFullError, StoreUnavailableError: an earlier put failed.
        """
        if digest_bytes(data) != digest:
            raise _wrong(digest)
        await self._start(self._put(digest, data))

    async def add_file(self, digest: Digest, spooled: SpooledFile) -> None:
        """Starts a put of a finished spool file, which removes it; raises as :meth:`add`."""
        if spooled.digest != digest:
            spooled.discard()
            raise _wrong(digest)
        await self._start(self._put_file(spooled))

    async def __aenter__(self) -> "ConcurrentPuts":
        """Returns itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Waits for all puts; on an error cancels them first."""
        if error is not None:
            for task in self._running:
                task.cancel()
        while self._running:
            await asyncio.wait(set(self._running))
        if error is None and self._failed is not None:
            raise self._failed

    async def _start(self, put: Coroutine[Any, Any, None]) -> None:
        await self._free_slots.acquire()
        if self._failed is not None:
            put.close()
            raise self._failed
        task = asyncio.create_task(put)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._free_slots.release()
        if not task.cancelled() and self._failed is None:
            self._failed = task.exception()

    async def _put(self, digest: Digest, data: bytes) -> None:
        with contextlib.suppress(LostBlobError):
            await self._blobs.get(digest)
        await self._blobs.put(digest, data)

    async def _put_file(self, spooled: SpooledFile) -> None:
        stored = spooled.path.with_name(temporary_name())
        try:
            with contextlib.suppress(LostBlobError):
                await self._blobs.fetch(spooled.digest, stored)
            await self._blobs.put_spooled(spooled)
        finally:
            spooled.discard()
            await asyncio.to_thread(stored.unlink, missing_ok=True)


def _wrong(digest: Digest) -> BlobCorruptError:
    return BlobCorruptError("the decoded bytes do not have their digest", where=f"cas/{digest}")
