"""A value in memory that several processes of one machine read without copying it.

Component hosts, their sandboxes and the worker's hub pass such values to each other as descriptors
of files in memory (``memfd_create``). What another process sends is checked before it is read: only
a seal makes sure that its bytes and its size stay as they are. From trusted hosts a value may also
be in a *reusable* file (:mod:`reusable_files`), which only its producer can write, once nobody
reads it any more.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence

from flowmesh_core.errors import ProtocolError
from flowmesh_worker.ipc.file_locks import reopened

SHARED_BYTES_MIN = 64 << 10
"""Smaller values travel inside their message, which costs less."""
SHARED_BYTES_MAX = 64 << 20
"""The largest value; a sandbox cannot create larger files."""
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
_SEAL_FUTURE_WRITE = 0x10  # not in the module before Python 3.13
REUSABLE_SEALS = _SEAL_FUTURE_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
"""Of a file that only what its producer had mapped before can still change."""
_PAGE_BYTES = mmap.PAGESIZE


class SharedValue:
    """One value; its descriptor is closed with the last reference to this object.

    Attributes:
        size: bytes.
        is_sealed: whether nobody can write its file, which then has just these bytes.
        is_reusable: whether its producer writes the file again, once nobody can read this value.
    """

    __slots__ = ("__weakref__", "_descriptor", "is_reusable", "is_sealed", "size")

    def __init__(
        self, descriptor: int, size: int, *, is_sealed: bool = True, is_reusable: bool = False
    ) -> None:
        """Owns a descriptor; use :meth:`sealed` or :meth:`received`."""
        self._descriptor = descriptor
        self.size = size
        self.is_sealed = is_sealed
        self.is_reusable = is_reusable

    def __del__(self) -> None:
        """Closes the descriptor."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    @classmethod
    def spare(cls, size: int) -> "SharedValue":
        """Returns a file with memory of this size, for :meth:`sealed`.

        Raises:
            OSError: the kernel refuses to create it, or there is no memory for it.
        """
        value = cls(os.memfd_create("value", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), size)
        if size:
            os.posix_fallocate(value.fileno(), 0, size)
        return value

    @classmethod
    def sealed(
        cls, parts: Sequence[bytes | memoryview], spare: "SharedValue | None" = None
    ) -> "SharedValue":
        """Returns a value with these bytes, one part after the other.

        Args:
            parts: the bytes.
            spare: becomes the value; None to create a file.

        Raises:
            OSError: as :meth:`spare`.
        """
        value = cls.spare(0) if spare is None else spare
        value.size = sum(len(part) for part in parts)
        os.ftruncate(value.fileno(), value.size)
        for part in parts:
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(value.fileno(), rest) :]
        fcntl.fcntl(value.fileno(), fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
        return value

    @classmethod
    def received(
        cls, descriptor: int, size: int = 0, *, accepts_reusable: bool = False
    ) -> "SharedValue":
        """Returns the value behind a descriptor that another process has sent, and owns it.

        Args:
            descriptor: of its file.
            size: of a value in a reusable file, which may be longer.
            accepts_reusable: whether such files of that process are read.

        Raises:
            ProtocolError: it is not such a value; the descriptor is closed.
        """
        value = cls(descriptor, 0)
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            # Pages of hugetlbfs may not exist when they are read, which ends the reader.
            is_plain = os.fstatvfs(descriptor).f_bsize == _PAGE_BYTES
            file_bytes = os.fstat(descriptor).st_size
        except OSError:
            raise ProtocolError("a descriptor that was passed is not a value in memory") from None
        value.is_sealed = seals & _SEALS == _SEALS
        is_safe = accepts_reusable and seals & REUSABLE_SEALS == REUSABLE_SEALS
        if not is_plain or not (value.is_sealed or is_safe):
            raise ProtocolError("a value that was passed is not sealed: it could change")
        value.size, most = file_bytes, SHARED_BYTES_MAX
        if not value.is_sealed:
            value.size, most = size, min(file_bytes, most)
            value.is_reusable = not seals & fcntl.F_SEAL_SEAL
        if not 0 < value.size <= most:
            raise ProtocolError(
                f"a value that was passed has {value.size} bytes: expected 1 to {most}"
            )
        return value

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._descriptor

    def end_reuse(self) -> None:
        """Has the producer never write the file again, before it goes to code that is not trusted.

        Such code could map the file anew, beside this value's lock, and read what is written next.

        Raises:
            OSError: this process has too many files open.
        """
        if not self.is_reusable:
            return
        writable = reopened(self._descriptor, os.O_RDWR)
        try:
            fcntl.fcntl(writable, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        except PermissionError:
            if not has_ended_reuse(writable):  # by another process, for another reader
                raise
        finally:
            os.close(writable)
        self.is_reusable = False

    def view(self) -> memoryview:
        """Returns the bytes, read-only and without copying them; valid after this object too.

        Raises:
            OSError: this process may not map so much.
        """
        return memoryview(mmap.mmap(self._descriptor, self.size, prot=mmap.PROT_READ))

    def read(self) -> bytes:
        """Returns a copy of the bytes.

        Raises:
            ProtocolError: there are less, which a seal prevents.
        """
        data = os.pread(self._descriptor, self.size, 0)
        if len(data) != self.size:
            raise ProtocolError(f"a value has {len(data)} bytes: expected {self.size}")
        return data


def has_ended_reuse(descriptor: int) -> bool:
    """Returns whether a reusable file went to code that is not trusted: it has a last seal."""
    return bool(fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL)
