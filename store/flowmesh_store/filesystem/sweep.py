"""The sweep of a directory: lists and deletes the blobs of all scopes."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator

from flowmesh_core.units import Digest
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.keys import CAS, area_prefix, blob_name, is_digest, is_scope
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import StoredBlob

log = logging.getLogger("flowmesh.store")

_STRAY_SHOWN = 10


class FilesystemSweep:
    """Lists and deletes the blobs of a directory."""

    def __init__(self, root: StoreRoot, *, clock: Callable[[], float] = time.time) -> None:
        """Keeps the arguments.

        Args:
            root: the store's directory.
            clock: Unix time in seconds, comparable with the times of files.
        """
        self._root = root
        self._clock = clock

    async def blobs(self, scope: str = "") -> AsyncIterator[StoredBlob]:
        """As :meth:`Sweepable.blobs`."""
        for name in [scope] if scope else await asyncio.to_thread(self._scopes):
            for directory in await asyncio.to_thread(self._folders, name):
                for blob in await asyncio.to_thread(self._list, name, directory):
                    yield blob

    def scan(self) -> Iterator[StoredBlob]:
        """Yields all blobs, as :meth:`blobs` does, for callers that may block."""
        for scope in self._scopes():
            for directory in self._folders(scope):
                yield from self._list(scope, directory)

    async def delete(self, scope: str, digest: Digest, *, older_than_s: float) -> bool:
        """As :meth:`Sweepable.delete`."""
        return await asyncio.to_thread(self._delete, scope, digest, older_than_s)

    async def discard_unfinished(self, *, older_than_s: float) -> int:
        """As :meth:`Sweepable.discard_unfinished`."""
        return await asyncio.to_thread(self._root.discard_temporary, older_than_s=older_than_s)

    def _scopes(self) -> list[str]:
        return self._names(CAS, is_scope)

    def _folders(self, scope: str) -> list[str]:
        return self._names(f"{CAS}/{scope}", lambda name: len(name) == 2)  # noqa: PLR2004 - hex

    def _names(self, folder: str, accepts: Callable[[str], bool]) -> list[str]:
        """Returns the names of the folders in a folder; warns of anything else."""
        found: list[str] = []
        stray: list[str] = []
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(self._root.locate(folder)) as entries,
        ):
            for entry in entries:
                is_ours = accepts(entry.name) and entry.is_dir(follow_symlinks=False)
                (found if is_ours else stray).append(entry.name)
        _warn(folder, stray)
        return sorted(found)

    def _list(self, scope: str, directory: str) -> list[StoredBlob]:
        now = self._clock()
        found: list[StoredBlob] = []
        stray: list[str] = []
        folder = f"{CAS}/{scope}/{directory}"
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(self._root.locate(folder)) as entries,
        ):
            for entry in entries:
                if not is_digest(entry.name):
                    stray.append(entry.name)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    age = max(0.0, now - status.st_mtime)
                    found.append(StoredBlob(scope, Digest(entry.name), status.st_size, age))
        _warn(folder, stray)
        return sorted(found, key=lambda blob: blob.digest)

    def _delete(self, scope: str, digest: Digest, older_than_s: float) -> bool:
        path = self._root.locate(area_prefix(scope) + blob_name(digest))
        try:
            with self._root.locked(digest):
                if self._clock() - os.stat(path).st_mtime < older_than_s:
                    return False
                os.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise store_error(error, path) from error
        return True


def _warn(folder: str, stray: list[str]) -> None:
    if stray:
        log.warning(
            "%s of the store contains files that FlowMesh did not write: %s; remove them",
            folder,
            ", ".join(repr(name)[:200] for name in sorted(stray)[:_STRAY_SHOWN]),
        )
