"""Decodes bytes that were received, and that may be damaged in any way.

The decoders of msgspec raise their own error for most malformed bytes, but another one for a string
that is not UTF-8 and for deep nesting.
"""

from typing import Protocol, TypeVar

import msgspec

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
