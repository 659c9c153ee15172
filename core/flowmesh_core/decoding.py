"""Decodes bytes that were stored or received, and that may be damaged in any way.

The decoders of msgspec raise their own error for most malformed bytes, but another one for a string
that is not UTF-8, for deep nesting, and for a value that its type refuses. A caller that catches
only the first of them would be ended by a single flipped byte. So every record, message and body is
decoded here; ``tests/test_decoders.py`` finds calls of a decoder elsewhere.
"""

from typing import Protocol, TypeVar

import msgspec

from flowmesh_core.errors import FlowMeshError

_Content_co = TypeVar("_Content_co", covariant=True)


class Decoder(Protocol[_Content_co]):
    """A decoder of msgspec, for JSON or MessagePack."""

    def decode(self, data: bytes | bytearray | memoryview, /) -> _Content_co:
        """Returns the value that the bytes encode."""
        ...


def decode(decoder: Decoder[_Content_co], data: bytes | bytearray | memoryview) -> _Content_co:
    """Returns the value that the bytes encode.

    Raises:
        msgspec.DecodeError: they do not encode a value of the decoder's type, whatever is wrong.
    """
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as e:
        raise msgspec.DecodeError(f"a string in it is not UTF-8: {e.reason}") from e
    except RecursionError as e:
        raise msgspec.DecodeError("it is nested too deeply") from e
    except FlowMeshError as e:  # of a type that checks its own values, such as a schema
        raise msgspec.DecodeError(str(e)) from e
