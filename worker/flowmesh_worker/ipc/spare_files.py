"""Files in memory for the next values of a sandbox, prepared while its code is idle.

A sealed file cannot be written again, and new pages take most of the time of a large value: 8 of 10
ms of processor time for 16 MiB. So memory for as many bytes as the last values had is made ready
after they were sent.
"""

import contextlib
from collections.abc import Sequence

from flowmesh_worker.ipc.shared_value import SharedValue

SPARE_BYTES_MAX = 32 << 20
"""Memory that is ready, of all files of a process."""
_SPARE_BYTES_MIN = 1 << 20


class SpareFiles:
    """The files of one process."""

    def __init__(self) -> None:
        self._spare: list[SharedValue] = []
        self._sizes: list[int] = []

    def value_of(self, parts: Sequence[bytes | memoryview]) -> SharedValue:
        """Returns a value with these bytes; see :meth:`SharedValue.sealed`.

        Raises:
            OSError: the kernel refuses to create it, or there is no memory for it.
        """
        self._sizes.append(sum(len(part) for part in parts))
        return SharedValue.sealed(parts, self._spare.pop() if self._spare else None)

    @property
    def is_used(self) -> bool:
        """Whether values were made since the last time."""
        return bool(self._sizes)

    def prepare(self) -> None:
        """Prepares as many files as values were made since the last time."""
        sizes, self._sizes = self._sizes, []
        if not sizes:
            return
        unused, self._spare = {value.size: value for value in self._spare}, []
        left = SPARE_BYTES_MAX
        for size in sizes:
            if _SPARE_BYTES_MIN <= size <= left:
                left -= size
                with contextlib.suppress(OSError):  # then the value makes its own
                    known = unused.pop(size) if size in unused else None
                    self._spare.append(known or SharedValue.spare(size))
