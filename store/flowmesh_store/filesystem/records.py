"""Records in a directory, with conditional writes across threads and processes.

Action results, of which there are very many, are in a log; every other record is a file.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator

from flowmesh_core.errors import ConditionFailedError, DamagedRecordError, StoreError
from flowmesh_store.atomic_files import make_parent, place, read_whole, sync_directory
from flowmesh_store.collection.sweep import StoredRecord
from flowmesh_store.durability import Durability
from flowmesh_store.filesystem.record_log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot
from flowmesh_store.hashing import digest_of
from flowmesh_store.keys import ACTIONS, CAS, check_key
from flowmesh_store.os_errors import store_error
from flowmesh_store.ports import Record
from flowmesh_store.regular_files import NotRegularFileError, open_regular, read_regular

_INLINE_BYTES = 64 << 10
_LISTED_AT_ONCE = 1000
_LINK_TRIES = 16
_LOGGED = f"{ACTIONS}/"
_NEVER_IN_TEXT = b"\xff"


class FilesystemRecords:
    """Records as files, whose etags are digests of their content; action results in a log."""

    def __init__(
        self,
        root: StoreRoot,
        *,
        durability: Durability = Durability.VERDICTS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keeps the arguments.

        Args:
            root: the store's directory.
            durability: which records are synced to the disk before ``write`` returns.
            clock: Unix time in seconds, comparable with the times of files.
        """
        self._root = root
        self._durability = durability
        self._clock = clock
        self._log = RecordLog(root, ACTIONS, clock=clock)

    async def read(self, key: str) -> Record | None:
        """As :meth:`RecordStore.read`."""
        if check_key(key).startswith(_LOGGED):
            return await self._read_logged(key)
        path = self._root.locate(key)
        try:
            descriptor, found = open_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotRegularFileError as error:
            raise DamagedRecordError(key, error.message, remedy=error.remedy) from error
        except OSError as error:
            raise store_error(error, path) from error
        size = found.st_size
        if size <= _INLINE_BYTES:
            return self._read(descriptor, size, path)
        return await asyncio.to_thread(self._read, descriptor, size, path)

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """As :meth:`RecordStore.write`."""
        durable = self._durability.syncs_record(check_key(key))
        if key.startswith(_LOGGED):
            return await self._write_logged(key, data, if_match, durable)
        if if_match is not None:
            return await asyncio.to_thread(self._replace, key, data, if_match, durable)
        if durable or len(data) > _INLINE_BYTES:
            return await asyncio.to_thread(self._create, key, data, durable)
        return self._create(key, data, durable)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordStore.keys`."""
        async for record in self.aged(prefix):
            yield record.key

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordFolders.folders`."""
        with _as_store_errors(prefix):
            names = await asyncio.to_thread(self._folders, prefix)
        for name in names:
            yield name

    async def aged(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """As :meth:`SweepableRecords.aged`."""
        walk = self._walk("", prefix)
        while True:
            with _as_store_errors(prefix):
                batch = await asyncio.to_thread(self._take, walk)
            if not batch:
                return
            for record in batch:
                yield record

    async def delete(self, key: str, *, older_than_s: float) -> bool:
        """As :meth:`SweepableRecords.delete`."""
        return await asyncio.to_thread(self._delete, check_key(key), older_than_s)

    async def erase_deleted(self) -> None:
        """As :meth:`SweepableRecords.erase_deleted`: the log is copied without them."""
        with _as_store_errors(_LOGGED):
            await asyncio.to_thread(self._log.compact)

    async def _read_logged(self, key: str) -> Record | None:
        # Once per action: a context manager would cost as much as the read itself.
        try:
            return self._log.read(key, wait=False)
        except BlockingIOError:
            with _as_store_errors(key):
                return await asyncio.to_thread(self._log.read, key)
        except OSError as error:
            raise store_error(error, key) from error

    async def _write_logged(
        self, key: str, data: bytes, if_match: str | None, durable: bool
    ) -> str:
        if _NEVER_IN_TEXT in data:
            raise StoreError(
                "the record is not text in UTF-8",
                where=key,
                remedy=f"store binary content as a blob, or outside {_LOGGED}",
            )
        try:
            etag = self._log.write(key, data, if_match=if_match, durable=durable, wait=False)
        except BlockingIOError:
            with _as_store_errors(key):
                etag = await asyncio.to_thread(
                    self._log.write, key, data, if_match=if_match, durable=durable
                )
        except OSError as error:
            raise store_error(error, key) from error
        if etag is None:
            reason = "the record is there" if if_match is None else "the record has changed"
            raise _condition_failed(key, reason)
        return etag

    def _read(self, descriptor: int, size: int, path: str) -> Record:
        try:
            data = read_whole(descriptor, size)
        except OSError as error:
            raise store_error(error, path) from error
        finally:
            os.close(descriptor)
        return Record(data, digest_of(data))

    def _create(self, key: str, data: bytes, durable: bool) -> str:
        path = self._root.locate(key)
        try:
            temporary = self._root.write_temporary(data, durable=durable)
            try:
                _link(temporary, path)
            finally:
                os.unlink(temporary)
            if durable:
                sync_directory(path)
        except (FileExistsError, IsADirectoryError):
            raise _condition_failed(key, "the record is there") from None
        except OSError as error:
            raise store_error(error, path) from error
        return digest_of(data)

    def _replace(self, key: str, data: bytes, if_match: str, durable: bool) -> str:
        path = self._root.locate(key)
        try:
            with self._root.locked(key):
                if _etag_of(path) != if_match:
                    raise _condition_failed(key, "the record has changed")
                temporary = self._root.write_temporary(data, durable=durable)
                try:
                    place(temporary, path)
                except BaseException:
                    os.unlink(temporary)
                    raise
                if durable:
                    sync_directory(path)
        except OSError as error:
            raise store_error(error, path) from error
        return digest_of(data)

    def _delete(self, key: str, older_than_s: float) -> bool:
        path = self._root.locate(key)
        try:
            if key.startswith(_LOGGED):
                return self._log.delete(key, older_than_s=older_than_s)
            with self._root.locked(key):
                if self._clock() - os.stat(path).st_mtime < older_than_s:
                    return False
                os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise store_error(error, path) from error
        self._remove_empty_folders(key)
        return True

    def _remove_empty_folders(self, key: str) -> None:
        """Removes the folders that a deleted record leaves empty, except the topmost."""
        folder = key.rpartition("/")[0]
        with contextlib.suppress(OSError):  # the first that is not empty
            while "/" in folder:
                os.rmdir(self._root.locate(folder))
                folder = folder.rpartition("/")[0]

    def _folders(self, prefix: str) -> list[str]:
        if prefix.startswith(_LOGGED):
            below = (r.key.removeprefix(prefix) for r in self._log.aged(prefix))
            return sorted({name.split("/")[0] for name in below if "/" in name})
        try:
            with os.scandir(self._root.locate(prefix)) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []

    @staticmethod
    def _take(walk: Iterator[StoredRecord]) -> list[StoredRecord]:
        batch: list[StoredRecord] = []
        for record in walk:
            batch.append(record)
            if len(batch) == _LISTED_AT_ONCE:
                break
        return batch

    def _walk(self, directory: str, prefix: str) -> Iterator[StoredRecord]:
        """Yields the records below a directory (``""`` or ending in a slash), by key."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self._root.locate(directory)) as entries:
                # A directory sorts by its name with the slash, as the keys inside it do.
                found = sorted(
                    (e.name + ("/" if e.is_dir(follow_symlinks=False) else ""), e)
                    for e in entries
                    if not e.name.startswith(".") and (directory or e.name != CAS)
                )
            for name, entry in found:
                key = directory + name
                if key == _LOGGED:
                    if prefix.startswith(_LOGGED) or _LOGGED.startswith(prefix):
                        yield from self._log.aged(prefix)
                elif name.endswith("/"):
                    if key.startswith(prefix) or prefix.startswith(key):
                        yield from self._walk(key, prefix)
                elif key.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        age = max(0.0, self._clock() - status.st_mtime)
                        yield StoredRecord(key, status.st_size, age)


@contextlib.contextmanager
def _as_store_errors(where: str) -> Iterator[None]:
    """Translates errors of the system into errors of the store."""
    try:
        yield
    except OSError as error:
        raise store_error(error, where) from error


def _link(temporary: str, path: str) -> None:
    for _ in range(_LINK_TRIES):
        # The folder is missing where nothing was in it yet, or a deletion has just removed it.
        with contextlib.suppress(FileNotFoundError):
            os.link(temporary, path)
            return
        with contextlib.suppress(FileNotFoundError):
            make_parent(path)
    os.link(temporary, path)


def _etag_of(path: str) -> str | None:
    try:
        return digest_of(read_regular(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _condition_failed(key: str, reason: str) -> ConditionFailedError:
    return ConditionFailedError(reason, where=key, remedy="read it and decide again")
