"""Locks by which processes see whether a file in memory is still read, and still owned.

The kernel keeps them, so they need no messages and end with a process that crashes. A value is read
as long as its *shared lock* (``flock``) lives: that of a file description of its own, of which
descriptors on their way, received descriptors and mappings are all copies. The producer's *mark*
(a lock of its own file description) lives until it drops the file.
"""

import fcntl
import os
import struct

_LOCK = struct.Struct("hhqqi4x")
"""``struct flock``: type, whence, start, length, process."""


def reopened(descriptor: int, flags: int = os.O_RDONLY) -> int:
    """Returns a descriptor of a new file description of an open file.

    Raises:
        OSError: this process may not, or has too many files open.
    """
    return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)


def lock_while_read(descriptor: int) -> None:
    """Has :func:`is_read` be true until each copy of this descriptor and each mapping is gone.

    Raises:
        OSError: the kernel does not lock such files.
    """
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_read(descriptor: int) -> bool:
    """Returns whether any process can still read a value of the file; asked by its producer."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def mark_owned(descriptor: int) -> None:
    """Has :func:`is_owned` be true until this file description is closed.

    Raises:
        OSError: the kernel does not lock such files.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def is_owned(descriptor: int) -> bool:
    """Returns whether the producer of a file may use it again."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    found = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
    return bool(found[0] != fcntl.F_UNLCK)
