"""Random bytes of the operating system for the names and seeds of requests, many at once.

A system call for each of both takes longer than all checks of a request's headers.
"""

import os

_DRAWN_BYTES = 4096
_ID_BYTES = 12
_SEED_BYTES, _SEED_BITS = 8, 62


class _RandomBytes:
    """Bytes that were drawn and not used yet; for one thread, of a process that does not fork."""

    __slots__ = ("_drawn", "_used")

    def __init__(self) -> None:
        self._drawn = b""
        self._used = 0

    def take(self, count: int) -> bytes:
        end = self._used + count
        if end > len(self._drawn):
            self._drawn, end = os.urandom(_DRAWN_BYTES), count
        self._used = end
        return self._drawn[end - count : end]


_bytes = _RandomBytes()


def new_call_id() -> str:
    """Returns a name that no other call has, of this router or another."""
    return _bytes.take(_ID_BYTES).hex()


def new_seed() -> int:
    """Returns a seed."""
    return int.from_bytes(_bytes.take(_SEED_BYTES), "big") >> (8 * _SEED_BYTES - _SEED_BITS)
