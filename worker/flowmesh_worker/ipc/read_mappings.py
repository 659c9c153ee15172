"""The mappings that a trusted host keeps of files whose producers write them again.

To map a file and find its pages takes 1.7 ms for 16 MiB. A mapping is made of a file description
that has no lock, so it keeps no producer from writing; each view of a value keeps the value's lock.
"""

import os
import weakref

from flowmesh_worker.ipc.file_locks import is_owned, reopened
from flowmesh_worker.ipc.memory_mapping import MemoryMapping
from flowmesh_worker.ipc.shared_value import SharedValue

MAPPED_BYTES_MAX = 256 << 20
MAPPINGS_MAX = 128
VIEWS_MAX = 128
"""Values whose arrays are kept at once; further ones are copied, as each keeps a descriptor."""


class _ReadMapping:
    """The mapping of one file."""

    def __init__(self, value: SharedValue, size: int) -> None:
        """Maps the file of a value.

        Raises:
            OSError: this process may not map so much, or has too many files open.
        """
        # It has the descriptor, to see whether the file is kept.
        self._file = SharedValue(reopened(value.fileno()), size)
        self._mapping = MemoryMapping(self._file.fileno(), size)
        self.size = size

    @property
    def is_owned(self) -> bool:
        """Whether the producer may write another value."""
        return is_owned(self._file.fileno())

    def view(self, value: SharedValue) -> memoryview:
        """Returns the bytes of a value; each array of them keeps its lock."""
        return self._mapping.view(value)[: value.size].toreadonly()


class ReadMappings:
    """The mappings of one process; those that were used last are kept."""

    def __init__(self) -> None:
        self._mappings: dict[tuple[int, int], _ReadMapping] = {}
        self._bytes = 0
        self._viewed: weakref.WeakSet[SharedValue] = weakref.WeakSet()
        self.has_new = False

    def view(self, value: SharedValue) -> memoryview:
        """Returns the bytes of a value, read-only; without copying them while few are kept.

        Raises:
            OSError: this process may not map so much.
        """
        if not value.is_reusable:
            return value.view()
        if len(self._viewed) >= VIEWS_MAX:
            return memoryview(value.read())
        self._viewed.add(value)
        status = os.fstat(value.fileno())
        key = (status.st_dev, status.st_ino)
        mapping = self._mappings.pop(key, None)
        if mapping is None:
            mapping = _ReadMapping(value, status.st_size)
            self._bytes += mapping.size
            self.has_new = True
        self._mappings[key] = mapping
        while self._bytes > MAPPED_BYTES_MAX or len(self._mappings) > MAPPINGS_MAX:
            self._drop(next(iter(self._mappings)))
        return mapping.view(value)

    def drop_ended(self) -> None:
        """Drops mappings of files that their producers have dropped."""
        self.has_new = False
        for key, mapping in list(self._mappings.items()):
            if not mapping.is_owned:
                self._drop(key)

    def _drop(self, key: tuple[int, int]) -> None:
        self._bytes -= self._mappings.pop(key).size
