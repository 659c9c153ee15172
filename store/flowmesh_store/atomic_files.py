"""Atomic operations on files, used by the filesystem store, the spool and the cache.

They raise the system's OSError unless they state other errors.
"""

import itertools
import os
from contextlib import suppress
from pathlib import Path

from flowmesh_store.os_errors import store_error

_serial = itertools.count()
_nonce = os.urandom(4).hex()


def temporary_name(prefix: str = "") -> str:
    """Returns a file name that no other process or call uses."""
    return f"{prefix}{os.getpid()}-{_nonce}-{next(_serial)}.partial"


def write_new(path: str, data: bytes, *, durable: bool = False) -> None:
    """Writes a new file; on an error it is removed.

    Raises:
        OSError: the system's error.
    """
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


def make_parent(path: str) -> None:
    """Creates the directory of a path."""
    os.makedirs(os.path.dirname(path), exist_ok=True)


def place(temporary: str, path: str) -> None:
    """Renames a temporary file to its path, replacing any file there; creates the directory."""
    try:
        os.replace(temporary, path)
    except FileNotFoundError:
        make_parent(path)
        os.replace(temporary, path)


def sync_directory(path: str) -> None:
    """Syncs the directory of a path to the disk."""
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


def is_cached(descriptor: int, size_bytes: int) -> bool:
    """Whether the file is in the page cache, judged by its last byte.

    True where the kernel or filesystem cannot tell: small reads are then assumed to be cheap.
    """
    if not size_bytes:
        return True
    try:
        return os.preadv(descriptor, [bytearray(1)], size_bytes - 1, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:
        return True


def write_beside(target: Path, data: bytes) -> None:
    """Replaces a file atomically; on an error it is unchanged.

    Raises:
        StoreFullError, StoreUnavailableError, StoreError: it could not be written.
    """
    partial = os.path.join(os.path.dirname(target), temporary_name())
    try:
        write_new(partial, data)
        os.replace(partial, target)
    except OSError as error:
        with suppress(OSError):
            os.unlink(partial)
        raise store_error(error, str(target)) from error
