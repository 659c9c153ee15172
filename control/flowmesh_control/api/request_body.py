"""Decodes the JSON body of a request; one that is malformed is a client error (400)."""

from typing import TypeVar

import msgspec
from aiohttp import web

from flowmesh_core.decoding import Decoder, decode
from flowmesh_core.errors import FlowMeshError

_Body = TypeVar("_Body")

BODY_BYTES_MAX = 32 << 20
COMMAS_MAX = 1_000_000
"""In a body; each separates two values, and a decoded value takes up to 64 bytes."""
_BODY = web.RequestKey("body", bytes)


async def body_of(request: web.Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Returns the body of a request, decompressed; reads it once.

    ``request.read`` would read all of a body that is too large, and decompress it in one piece.

    Raises:
        web.HTTPRequestEntityTooLarge: it has, or says that it has, too many bytes, or it has too
            many values.
    """
    if _BODY not in request:
        if (request.content_length or 0) > bytes_max:
            raise _too_large(bytes_max)
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > bytes_max:
                raise _too_large(bytes_max)
        if len(body) > COMMAS_MAX and body.count(b",") > COMMAS_MAX:
            raise _too_large(bytes_max)
        request[_BODY] = bytes(body)
    return request[_BODY]


def _too_large(bytes_max: int) -> web.HTTPRequestEntityTooLarge:
    text = (
        f"a body has at most {bytes_max:,} bytes and {COMMAS_MAX:,} commas;"
        " upload rows instead of writing them into the workflow"
    )
    return web.HTTPRequestEntityTooLarge(bytes_max, text=text)


async def read_body(
    request: web.Request, decoder: Decoder[_Body], bytes_max: int = BODY_BYTES_MAX
) -> _Body:
    """Reads and decodes the body of a request.

    Raises:
        FlowMeshError: the body is not of the decoder's type.
    """
    return decode_body(await body_of(request, bytes_max), decoder)


def decode_body(body: bytes, decoder: Decoder[_Body]) -> _Body:
    """Decodes a body; raises as :func:`read_body`."""
    try:
        return decode(decoder, body)
    except msgspec.DecodeError as e:
        raise FlowMeshError(
            f"the body cannot be read: {e}", where="body", remedy="see docs/api.md"
        ) from e
