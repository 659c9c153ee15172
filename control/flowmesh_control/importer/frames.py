"""Frames from the process that decodes an upload to the control plane.

The process has read untrusted input, so the control plane bounds and validates every frame.
"""

import asyncio

import msgspec

from flowmesh_control.evaluators import framing
from flowmesh_control.evaluators.framing import BrokenFrameError, framed
from flowmesh_core.decoding import decode
from flowmesh_core.units import Digest

MEMORY_BYTES = 1 << 30
"""Memory that the process may use beyond the interpreter and its libraries."""
PIECE_BYTES = 1 << 20
_FRAME_BYTES_MAX = 2 * PIECE_BYTES


class BlobPart(msgspec.Struct, frozen=True, tag="Piece"):
    """The next bytes of a blob that is too long for one frame."""

    data: bytes


class BlobEnd(msgspec.Struct, frozen=True, tag="Blob"):
    """The last bytes of a blob, after its :class:`BlobPart` frames."""

    digest: Digest
    data: bytes


class DatasetDecoded(msgspec.Struct, frozen=True, tag="Decoded"):
    """The result, after all blobs of the data set; the last blob is its manifest.

    Attributes:
        digest: the data set's identity.
        manifest: the digest of the manifest.
        size_bytes: the sum of the chunks' sizes.
        rows: how many there are.
        columns: their names in order.
    """

    digest: Digest
    manifest: Digest
    size_bytes: int
    rows: int
    columns: tuple[str, ...]


class DecodingRefused(msgspec.Struct, frozen=True, tag="Refused"):
    """The file cannot be decoded, or (``limit``) exceeds a limit for uploads."""

    message: str
    where: str
    remedy: str
    limit: bool


Frame = BlobPart | BlobEnd | DatasetDecoded | DecodingRefused
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
_encoder = msgspec.msgpack.Encoder()


def encoded(frame: Frame) -> bytes:
    """Encodes a frame, preceded by its length."""
    return framed(_encoder.encode(frame))


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Reads the next frame.

    Raises:
        BrokenFrameError: the stream ended, or the frame is too long or malformed.
    """
    try:
        return decode(_decoder, await framing.read_frame(reader, _FRAME_BYTES_MAX))
    except msgspec.DecodeError as e:
        raise BrokenFrameError(str(e)) from e
