"""Frames over pipes: bytes that follow their length. Used between the control plane and children.

A child has read what a tenant wrote, so the control plane bounds each frame that it reads.
"""

import asyncio
from typing import BinaryIO

_LENGTH_BYTES = 4


class BrokenFrameError(Exception):
    """The process ended within a frame, or wrote something other than frames."""


def framed(data: bytes) -> bytes:
    """Returns a frame with this content."""
    return len(data).to_bytes(_LENGTH_BYTES) + data


async def read_frame(reader: asyncio.StreamReader, longest_bytes: int) -> bytes:
    """Returns the content of the next frame.

    Raises:
        BrokenFrameError: the stream ended, or the frame is longer.
    """
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        if length > longest_bytes:
            raise BrokenFrameError(f"a frame of {length} bytes")
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as e:
        raise BrokenFrameError(str(e)) from e


def receive_frame(stream: BinaryIO) -> bytes | None:
    """Returns the content of the next frame, in a child; None at the end of the stream."""
    length = stream.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    return stream.read(int.from_bytes(length))
