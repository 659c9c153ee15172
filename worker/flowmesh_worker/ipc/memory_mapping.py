"""Maps a file in memory, for as long as anything refers to its bytes.

The standard library's ``mmap`` tells the address of read-only memory to nobody, and keeps a
descriptor of its own. Here each view can have an owner, which lives as long as the view, or any
array that was made of it.
"""

import ctypes
import mmap
import os
from functools import lru_cache
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _munmap = _libc.mmap, _libc.munmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
)
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


class MemoryMapping:
    """The whole of one file, shared with all that map it.

    Attributes:
        size: bytes.
    """

    __slots__ = ("_address", "size")

    def __init__(self, descriptor: int, size: int, *, is_writable: bool = False) -> None:
        """Maps a file.

        Args:
            descriptor: of the file; it may be closed afterwards.
            size: of the file, bytes.
            is_writable: to write it; its memory is there already and mapped at once.

        Raises:
            OSError: this process may not map so much, or not write it.
        """
        self._address = 0
        self.size = size
        protection, flags = mmap.PROT_READ, mmap.MAP_SHARED
        if is_writable:
            protection, flags = protection | mmap.PROT_WRITE, flags | mmap.MAP_POPULATE
        address = _mmap(None, size, protection, flags, descriptor, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._address = address

    def __del__(self) -> None:
        """Unmaps it."""
        if self._address:
            _munmap(self._address, self.size)

    def view(self, owner: object = None) -> memoryview:
        """Returns the bytes, which may be written where the mapping is writable.

        Args:
            owner: is kept as long as the view, and any view or array that is made of it.
        """
        pages = _pages(self.size).from_address(self._address)
        pages.owners = (self, owner)
        return memoryview(pages).cast("B")


@lru_cache(maxsize=64)
def _pages(size: int) -> Any:
    """Returns the type of a mapping of this size, whose objects can have attributes."""
    return type("Pages", (ctypes.Array,), {"_type_": ctypes.c_ubyte, "_length_": size})
