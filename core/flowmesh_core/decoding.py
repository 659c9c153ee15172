"""Decodes bytes that were stored or received, and that may be damaged in any way.

A caller that catches only msgspec's own error would be ended by a single flipped byte. So every
record, message and body is decoded here; ``tests/test_decoders.py`` finds calls of a decoder
elsewhere.
"""

from typing import TypeVar

import msgspec

from flowmesh_api import decoding
from flowmesh_api.decoding import Decoder
from flowmesh_core.errors import FlowMeshError

__all__ = ["Decoder", "decode"]

_Content = TypeVar("_Content")


def decode(decoder: Decoder[_Content], data: bytes | bytearray | memoryview) -> _Content:
    """Returns the value that the bytes encode.

    Raises:
        msgspec.DecodeError: they do not encode a value of the decoder's type, whatever is wrong.
    """
    try:
        return decoding.decode(decoder, data)
    except FlowMeshError as e:  # of a type that checks its own values, such as a schema
        raise msgspec.DecodeError(str(e)) from e
