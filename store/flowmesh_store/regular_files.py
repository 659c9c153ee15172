"""Opens files at paths that others can write to: regular files only.

An engine names its outputs by path, and in a directory that pods share any worker can place things.
Opening a FIFO waits until a process writes to it, a device never ends, and a link leads to files
that only the reader may read. So whatever reads such a path opens it here.
"""

import errno
import os
import stat
from pathlib import Path

from flowmesh_core.errors import StoreError

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Opening follows no link at the end of the path, and waits for nothing."""
_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO})
"""What opening a link, or a socket, raises with these flags."""


class NotRegularFileError(StoreError):
    """At the path is a link, a FIFO, a socket, a device, or a directory."""

    def __init__(self, path: str) -> None:
        super().__init__(
            "it is not a regular file: expected no link, FIFO, socket, device or directory",
            where=path,
            remedy="write a regular file there, or copy what the link names",
        )


def open_regular(path: str | Path) -> tuple[int, os.stat_result]:
    """Opens a regular file for reading; the caller closes the descriptor.

    Raises:
        NotRegularFileError: something else is there; nothing was read from it.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in _NOT_REGULAR and not is_loop_above(error):
            raise NotRegularFileError(str(path)) from error
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise NotRegularFileError(str(path))
    return descriptor, found


def is_loop_above(error: OSError) -> bool:
    """Whether a path could not be followed because of its directories, not of its last part."""
    return error.errno == errno.ELOOP and not os.path.islink(error.filename or "")


def read_regular(path: str | Path) -> bytes:
    """Returns the content of a regular file.

    Raises:
        NotRegularFileError, OSError: as :func:`open_regular`.
    """
    descriptor, _ = open_regular(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        return file.readall()


def is_regular(status: os.stat_result, size_bytes: int) -> bool:
    """Whether ``os.lstat`` describes a regular file of this size."""
    return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes
