"""The directory of a filesystem store, and the atomic operations that blobs and records use.

A reader sees a whole object or none: content is written to ``.tmp/`` and then renamed (blobs,
replaced records) or linked (new records: a link fails atomically if the name exists). A process
killed at any moment leaves at most a file in ``.tmp/``, which the collector deletes. Replacing and
deleting check a condition first, so they take a lock: ``flock`` on one of 256 files in ``.locks/``,
which the kernel releases when the process dies.
"""

import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from flowmesh_store.atomic_files import temporary_name, write_new
from flowmesh_store.os_errors import store_error

_STRIPES = 256


class StoreRoot:
    """A writable directory with the layout of a store."""

    def __init__(self, path: Path) -> None:
        """Creates the directory, and ``.tmp/`` and ``.locks/`` in it, if they are missing.

        Raises:
            StoreError, StoreFullError, StoreUnavailableError: it cannot be created.
        """
        self.path = path.absolute()
        self.temporary = self.path / ".tmp"
        self._locks = self.path / ".locks"
        self._prefix = f"{self.path}/"
        self._temporary_prefix = f"{self.temporary}/"
        try:
            for directory in (self.temporary, self._locks):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(error, str(path)) from error

    def locate(self, key: str) -> str:
        """Returns the path of a checked key."""
        return self._prefix + key

    def temporary_path(self) -> str:
        """Returns a path in ``.tmp/`` that no other process or call uses."""
        return self._temporary_prefix + temporary_name()

    def write_temporary(self, data: bytes, *, durable: bool) -> str:
        """Writes content to a new file in ``.tmp/``; see :func:`write_new`."""
        path = self.temporary_path()
        write_new(path, data, durable=durable)
        return path

    @staticmethod
    def remove(path: str) -> None:
        """Removes a file if it still exists."""
        with contextlib.suppress(OSError):
            os.unlink(path)

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Locks a key's stripe for the duration of the context, across threads and processes.

        Raises:
            OSError: the lock file cannot be opened.
        """
        stripe = zlib.crc32(key.encode()) % _STRIPES
        path = self._locks / f"{stripe:02x}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def discard_temporary(self, *, older_than_s: float) -> int:
        """Removes files that killed writers left in ``.tmp/``.

        Returns:
            The number of removed files.
        """
        oldest = time.time() - older_than_s
        count = 0
        with os.scandir(self.temporary) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime <= oldest:
                        os.unlink(entry.path)
                        count += 1
        return count
