"""Pieces of a content that are read at the same time and handed on in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

_Piece = TypeVar("_Piece", bytes, memoryview)
PIECE_BYTES = 8 << 20
"""Of one request: Amazon's guidelines for S3 name 8 to 16 MB."""
PIECES_AT_ONCE = 8
"""Being read, or read and not handed on, of all contents together: 64 MiB of memory."""


async def in_order(
    read: Callable[[int, int], Awaitable[_Piece]],
    start: int,
    stop: int,
    limit: asyncio.Semaphore,
    piece_bytes: int = PIECE_BYTES,
) -> AsyncGenerator[_Piece]:
    """Yields the pieces of a content, of which as many are read at once as the limit has places.

    A piece has its place until the next one is asked for, so that the limit bounds memory too.
    Several contents may share a limit: places are taken in the order of the pieces, so one that
    is next in its content never waits for later ones.

    Args:
        read: returns the bytes between two offsets.
        start: offset of the first byte.
        stop: offset after the last one.
        limit: places; close the iterator (``aclosing``) to give them back early.
        piece_bytes: of a piece; the last one may be smaller.
    """
    reading: deque[asyncio.Future[_Piece]] = deque()
    try:
        for offset in range(start, stop, piece_bytes):
            while reading and limit.locked():
                yield await reading[0]
                reading.popleft()
                limit.release()
            await limit.acquire()
            piece = read(offset, min(offset + piece_bytes, stop))
            reading.append(asyncio.ensure_future(piece))
        while reading:
            yield await reading[0]
            reading.popleft()
            limit.release()
    finally:
        for task in reading:
            task.cancel()
            limit.release()
        await asyncio.gather(*reading, return_exceptions=True)
