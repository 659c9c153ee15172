"""Packs results that contain NumPy arrays for components of other hosts, without pickle.

The layout is that of safetensors in short: a header, then the arrays' bytes as they are. The header
is MessagePack of the result, with an extension in place of each array that has its type, its shape
and its place. An array that is unpacked is read-only: its bytes are shared with other processes.
"""

import math
import struct
from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.protocol.serving import PACKED_ARRAYS

_HEADER = struct.Struct("<4sI")
_MAGIC = PACKED_ARRAYS + b"FM1"
_ARRAY = 1
_ALIGNED_BYTES = 64
_KINDS = "biufcSUmM"
"""Numbers, texts and times; an object or a record could be anything."""


class NotPackedError(ValueError):
    """A value cannot be packed, or is not one that was packed."""


class _Array(msgspec.Struct, frozen=True, array_like=True):
    """Where an array is; ``at`` counts from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    at: int


_arrays = msgspec.msgpack.Decoder(_Array)


def is_array(value: object) -> bool:
    """Returns whether a value is a NumPy array, without importing NumPy."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray"


def pack(value: Any) -> list[bytes | memoryview]:
    """Returns the parts of a packed value, in order; bytes of arrays are not copied.

    Raises:
        NotPackedError: it contains an array of objects.
        TypeError: it contains what MessagePack does not have.
    """
    parts: list[bytes | memoryview] = []
    end = 0

    def place(found: Any) -> msgspec.msgpack.Ext:
        nonlocal end
        if not is_array(found):
            raise TypeError(f"{type(found).__name__} is not supported")
        if found.dtype.kind not in _KINDS:
            raise NotPackedError(f"an array of {found.dtype} cannot be passed to another process")
        parts.append(bytes(-end % _ALIGNED_BYTES))
        at = end + -end % _ALIGNED_BYTES
        header = _Array(found.dtype.str, found.shape, at)
        if found.size:
            contiguous = found if found.flags.c_contiguous else found.copy(order="C")
            parts.append(memoryview(contiguous.reshape(-1).view("u1")))
        end = at + found.nbytes
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(header))

    body = msgspec.msgpack.encode(value, enc_hook=place)
    padding = bytes(_start(len(body)) - _HEADER.size - len(body))
    return [_HEADER.pack(_MAGIC, len(body)), body, padding, *parts]


def unpack(data: memoryview) -> Any:
    """Returns a packed value; its arrays use the bytes of ``data``.

    Raises:
        NotPackedError: it was not packed by :func:`pack`.
    """
    if len(data) < _HEADER.size or bytes(data[:4]) != _MAGIC:
        raise NotPackedError("the value of another component is not packed arrays")
    body_bytes = _HEADER.unpack_from(data)[1]
    body = bytes(data[_HEADER.size : _HEADER.size + body_bytes])
    arrays = data[_start(body_bytes) :]

    def read(code: int, found: memoryview) -> Any:
        import numpy as np  # noqa: PLC0415 - only code that uses it needs it

        if code != _ARRAY:
            raise NotPackedError(f"extension {code} is not an array")
        one = decode(_arrays, bytes(found))
        dtype = np.dtype(one.dtype)
        if dtype.kind not in _KINDS or min(one.shape, default=0) < 0 or one.at < 0:
            raise NotPackedError(f"an array of {one.dtype} and {one.shape} cannot be unpacked")
        if 0 in one.shape:
            return np.empty(one.shape, dtype)
        return np.frombuffer(arrays, dtype, math.prod(one.shape), one.at).reshape(one.shape)

    try:
        return decode(msgspec.msgpack.Decoder(ext_hook=read), body)
    except (ValueError, TypeError, msgspec.DecodeError) as error:
        text = f"the value of another component is not packed arrays: {error}"
        raise NotPackedError(text) from error


def _start(body_bytes: int) -> int:
    """Returns where the arrays begin."""
    end = _HEADER.size + body_bytes
    return end + -end % _ALIGNED_BYTES
