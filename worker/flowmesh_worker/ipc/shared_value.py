"""A value in memory that several processes of one machine read without copying it.

Component hosts, their sandboxes and the worker's hub pass such values to each other as descriptors
of sealed files in memory (``memfd_create``). What another process sends is checked before it is
read: only a seal makes sure that its bytes and its size stay as they are.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence

from flowmesh_core.errors import ProtocolError

SHARED_BYTES_MIN = 64 << 10
"""Smaller values travel inside their message, which costs less."""
SHARED_BYTES_MAX = 64 << 20
"""The largest value; a sandbox cannot create larger files."""
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK
_PAGE_BYTES = mmap.PAGESIZE


class SharedValue:
    """One value; its descriptor is closed with the last reference to this object.

    Attributes:
        size: bytes.
    """

    __slots__ = ("__weakref__", "_descriptor", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        """Owns a descriptor; use :meth:`sealed` or :meth:`received`."""
        self._descriptor = descriptor
        self.size = size

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
    def received(cls, descriptor: int) -> "SharedValue":
        """Returns the value behind a descriptor that another process has sent, and owns it.

        Raises:
            ProtocolError: it is not such a value; the descriptor is closed.
        """
        value = cls(descriptor, 0)
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            # Pages of hugetlbfs may not exist when they are read, which ends the reader.
            is_plain = os.fstatvfs(descriptor).f_bsize == _PAGE_BYTES
            value.size = os.fstat(descriptor).st_size
        except OSError:
            raise ProtocolError("a descriptor that was passed is not a value in memory") from None
        if seals & _SEALS != _SEALS or not is_plain:
            raise ProtocolError("a value that was passed is not sealed: it could change")
        if not 0 < value.size <= SHARED_BYTES_MAX:
            raise ProtocolError(
                f"a value that was passed has {value.size} bytes: expected 1 to {SHARED_BYTES_MAX}"
            )
        return value

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._descriptor

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
