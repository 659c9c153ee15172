"""The directory of a filesystem store, and the atomic steps that both its halves are made of.

A reader sees a whole object or none: content is written to ``.tmp/`` and then renamed (blobs,
replaced records) or linked (new records: a link fails where the name is taken, in one step for all
processes). A process killed at any moment leaves at most a file in ``.tmp/``, which the collector
removes. Replacing and deleting look before they act, so they hold a lock: ``flock`` on one of 256
files in ``.locks/``, which the kernel releases when its holder dies.
"""

import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from flowmesh_store.oserrors import store_error
from flowmesh_store.spool import temporary_name

_STRIPES = 256


class StoreRoot:
    """An existing, writable directory laid out as a store."""

    def __init__(self, path: Path) -> None:
        """Makes the directory and its two own folders where they are missing.

        Raises:
            StoreError, StoreFullError, StoreUnavailableError: it cannot be made.
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
        """The path of a checked key."""
        return self._prefix + key

    def write_temporary(self, data: bytes | memoryview, *, durable: bool) -> str:
        """Writes content to a new file in ``.tmp/``; on an error nothing is left behind.

        Raises:
            OSError: as the system said it.
        """
        path = self._temporary_prefix + temporary_name()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            if durable:
                os.fsync(descriptor)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    @staticmethod
    def remove(path: str) -> None:
        """Removes a file; harmless where it is gone."""
        with contextlib.suppress(OSError):
            os.unlink(path)

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Holds the lock of a key's stripe, against threads and processes alike.

        Raises:
            OSError: the lock file cannot be opened.
        """
        stripe = zlib.crc32(key.encode()) % _STRIPES
        path = self._locks / f"{stripe:02x}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def discard_temporary(self, *, older_than_s: float) -> int:
        """Removes what killed writers left in ``.tmp/``.

        Returns:
            How many files.
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


def make_parent(path: str) -> None:
    """Makes the directory that a path lies in."""
    os.makedirs(os.path.dirname(path), exist_ok=True)


def place(temporary: str, path: str) -> None:
    """Renames a temporary file into place, over what is there; makes the directory at need."""
    try:
        os.replace(temporary, path)
    except FileNotFoundError:
        make_parent(path)
        os.replace(temporary, path)


def sync_directory(path: str) -> None:
    """Waits until the disk holds the entries of the directory that a path lies in."""
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_whole(descriptor: int, size_bytes: int) -> bytes:
    """Reads an open file of a known size to its end."""
    data = os.read(descriptor, size_bytes + 1)
    if len(data) == size_bytes:
        return data
    parts = [data]
    while part := os.read(descriptor, 1 << 24):
        parts.append(part)
    return b"".join(parts)
