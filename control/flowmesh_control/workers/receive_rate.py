"""Limits how much one worker may send in a time, by pausing the reader of its connection.

While the gateway does not read, the worker's sends wait (TCP's flow control): nothing is dropped.
"""

from flowmesh_core.protocol.messages import Hello, Sync

BYTES_PER_S = 16 << 20
ITEMS_PER_S = 100_000
"""Attempts, ends, lines of logs and other entries of messages."""
WINDOW_S = 10.0
"""A worker may send as much as is allowed in this time at once."""


class ReceiveRate:
    """What one worker has sent of late (generic cell rate algorithm)."""

    __slots__ = ("_bytes_due_s", "_items_due_s")

    def __init__(self) -> None:
        self._bytes_due_s = self._items_due_s = float("-inf")

    def pause_s(self, now_s: float, size_bytes: int, items: int) -> float:
        """Counts a message; returns for how long nothing more should be read."""
        earliest_s = now_s - WINDOW_S
        self._bytes_due_s = max(self._bytes_due_s, earliest_s) + size_bytes / BYTES_PER_S
        self._items_due_s = max(self._items_due_s, earliest_s) + items / ITEMS_PER_S
        pause_s = max(self._bytes_due_s, self._items_due_s) - now_s
        return max(0.0, pause_s)


def items_of(message: Hello | Sync) -> int:
    """Returns the number of entries in a message."""
    found = len(message.ended) + len(message.checkpoints)
    found += len(message.instances or ()) + len(message.components or ())
    if isinstance(message, Hello):
        return found + len(message.attempts)
    return found + len(message.progress) + len(message.logs) + len(message.metrics)
