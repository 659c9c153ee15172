"""Decodes uploads in separate processes with bounded memory and a deadline."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from flowmesh_control.evaluators.confinement import child_environment
from flowmesh_control.evaluators.fair_places import FairPlaces
from flowmesh_control.evaluators.framing import BrokenFrameError
from flowmesh_control.importer.concurrent_puts import ConcurrentPuts
from flowmesh_control.importer.frames import (
    MEMORY_BYTES,
    BlobEnd,
    BlobPart,
    DatasetDecoded,
    DecodingRefused,
    read_frame,
)
from flowmesh_core.errors import ContentLimitError, IdentityError
from flowmesh_store.blobs import BlobViews

AT_ONCE = 2
DEADLINE_S = 300.0
_BYTES_PER_S = 1 << 20
"""Extra time for large files: a second for each this many bytes."""


class Importer:
    """Starts a process for each file; few run at once, because each may use much memory."""

    def __init__(
        self, store: BlobViews, *, at_once: int = AT_ONCE, deadline_s: float = DEADLINE_S
    ) -> None:
        """Starts without processes.

        Args:
            store: where chunks and manifests go.
            at_once: how many files are decoded at a time; others wait.
            deadline_s: for a small file; each MiB of a larger one adds a second.
        """
        self._store = store
        self._places = FairPlaces(at_once)
        self._deadline_s = deadline_s

    async def decode(self, name: str, path: Path, size_bytes: int, *, scope: str) -> DatasetDecoded:
        """Decodes a file and stores its chunks and its manifest.

        Args:
            name: the file's name; its suffix gives the format.
            path: of the file.
            size_bytes: its size.
            scope: where it is stored; while other scopes wait, a scope has one place.

        Raises:
            IdentityError: it cannot be decoded; names the line, or the row and the column.
            ContentLimitError: it exceeds a limit: memory, time or size.
            StoreFullError, StoreUnavailableError: it could not be stored.
        """
        deadline_s = self._deadline_s + size_bytes / _BYTES_PER_S
        async with self._places.place(scope):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-s",
                "-m",
                "flowmesh_control.importer.child",
                name,
                str(path),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=child_environment(),
            )
            try:
                async with asyncio.timeout(deadline_s):
                    return await self._receive(process, scope)
            except TimeoutError:
                raise ContentLimitError(
                    f"it was not read within {deadline_s:.0f} s",
                    where=name,
                    remedy="cut it into several files",
                ) from None
            except BrokenFrameError as e:
                raise _ended(name, await process.wait()) from e
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _receive(self, process: asyncio.subprocess.Process, scope: str) -> DatasetDecoded:
        assert process.stdout is not None
        blobs = self._store.view(write=scope, read=(scope,))
        writer = None
        try:
            async with ConcurrentPuts(blobs) as puts:
                while True:
                    frame = await read_frame(process.stdout)
                    match frame:
                        case BlobPart():
                            writer = writer or blobs.spool()
                            await asyncio.to_thread(writer.write, frame.data)
                        case BlobEnd() if writer is not None:
                            await asyncio.to_thread(writer.write, frame.data)
                            spooled = await asyncio.to_thread(writer.finish)
                            await puts.add_file(frame.digest, spooled)
                            writer = None
                        case BlobEnd():
                            await puts.add(frame.digest, frame.data)
                        case DecodingRefused():
                            kind = ContentLimitError if frame.limit else IdentityError
                            raise kind(frame.message, where=frame.where, remedy=frame.remedy)
                        case DatasetDecoded():
                            break
        finally:
            if writer is not None:
                writer.discard()
        return frame


def _ended(name: str, code: int) -> ContentLimitError:
    """Returns the error for a process that ended without a frame.

    Most likely a library could not allocate memory and aborted.
    """
    return ContentLimitError(
        f"the process that read it ended with code {code}; it may have needed more than"
        f" {MEMORY_BYTES >> 20} MiB of memory",
        where=name,
        remedy="cut it into several files, or its rows into shorter ones",
    )
