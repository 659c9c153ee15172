"""The frames of a record log (``record_log``): bytes of one write or deletion.

Sizes in bytes::

    mark 4 | crc 4 | data size 4 | key size 2 | kind 1 | written 8 | serial 8 | key | data

The crc covers everything after it.
"""

import errno
import os
import struct
import zlib
from typing import NamedTuple

LARGEST_BYTES = 64 << 20
"""The largest record."""
ALIVE, DEAD, ANY = b"\xffFM1", b"\xffFM0", b"\xffFM"
PUT, DELETED = 0, 1

_START = struct.Struct("<4sI")
_HEAD = struct.Struct("<IHBdQ")
_LEAST_BYTES = _START.size + _HEAD.size
_LONGEST_KEY = (1 << 16) - 1


class Frame(NamedTuple):
    """A whole frame; its etag is its own header, which no other write has."""

    alive: bool
    kind: int
    key: str
    data: bytes
    written_s: float
    etag: str
    length: int


def encoded(kind: int, key: str, data: bytes, written_s: float, serial: int) -> bytes:
    """Returns a frame of a kind.

    Raises:
        OSError: the key or the data are too long.
    """
    name = key.encode()
    if len(name) > _LONGEST_KEY:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if len(data) > LARGEST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    rest = _HEAD.pack(len(data), len(name), kind, written_s, serial) + name + data
    return _START.pack(ALIVE, zlib.crc32(rest)) + rest


def etag_at(chunk: bytes, at: int) -> str:
    """Returns the etag of the frame at an offset."""
    return chunk[at + len(ALIVE) : at + _LEAST_BYTES].hex()


def length_at(chunk: bytes, at: int) -> int:
    """Returns the length in the header of the frame at an offset; 0 where none begins."""
    if len(chunk) - at < _LEAST_BYTES or not chunk.startswith((ALIVE, DEAD), at):
        return 0
    data_bytes, key_bytes, *_ = _HEAD.unpack_from(chunk, at + _START.size)
    return int(_LEAST_BYTES + key_bytes + data_bytes) if data_bytes <= LARGEST_BYTES else 0


def parsed(chunk: bytes, at: int) -> Frame | None:
    """Returns the whole and undamaged frame at an offset; None where there is none."""
    length = length_at(chunk, at)
    end = at + length
    if not length or len(chunk) < end:
        return None
    mark, crc = _START.unpack_from(chunk, at)
    if zlib.crc32(memoryview(chunk)[at + _START.size : end]) != crc:
        return None
    _, key_bytes, kind, written_s, _ = _HEAD.unpack_from(chunk, at + _START.size)
    data_at = at + _LEAST_BYTES + key_bytes
    key, data = chunk[at + _LEAST_BYTES : data_at].decode(), chunk[data_at:end]
    return Frame(mark == ALIVE, kind, key, data, written_s, etag_at(chunk, at), length)
