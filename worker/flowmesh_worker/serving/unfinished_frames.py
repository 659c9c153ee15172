"""What hubs of other machines have sent of frames that are not whole yet, all links together.

A frame is read into memory before it is known what it is for, and may be as large as a value. So a
worker with a certificate could fill the hub of another one with frames that never end.
"""

from collections import Counter

from flowmesh_core.errors import ProtocolError
from flowmesh_worker.ipc.shared_value import SHARED_BYTES_MAX

UNFINISHED_BYTES_MAX = 5 * SHARED_BYTES_MAX
"""Of all workers; one has half of it at most, so that others' values still come."""
FRAME_WITHIN_S = 30.0
"""How long a frame may take to come: one of the largest needs 2.5 MB/s."""


class UnfinishedFrames:
    """The bytes of unfinished frames, by worker."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Of all workers."""
        return self._bytes.total()

    def change(self, worker: str, by: int) -> None:
        """Adds to the bytes of a worker.

        Raises:
            ProtocolError: they are too many; they count until they are taken away again.
        """
        self._bytes[worker] += by
        if not self._bytes[worker]:
            del self._bytes[worker]
        most = UNFINISHED_BYTES_MAX
        if by > 0 and (2 * self._bytes[worker] > most or self.total > most):
            raise ProtocolError(
                f"the hub of {worker} sends {self._bytes[worker]} bytes of frames that do not end,"
                f" of {self.total} of all hubs: expected at most {most}, and half of it of one"
            )
