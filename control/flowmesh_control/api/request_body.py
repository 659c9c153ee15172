"""Decodes the JSON body of a request; one that is malformed is a client error (400)."""

from typing import TypeVar

import msgspec
from aiohttp import web

from flowmesh_core.decoding import Decoder, decode
from flowmesh_core.errors import FlowMeshError

_Body = TypeVar("_Body")

BODY_BYTES_MAX = 128 << 20
_BODY = web.RequestKey("body", bytes)


async def body_of(request: web.Request) -> bytes:
    """Returns the body of a request, decompressed; reads it once.

    ``request.read`` would read all of a body that is too large, and decompress it in one piece.

    Raises:
        web.HTTPRequestEntityTooLarge: it has, or says that it has, too many bytes.
    """
    if _BODY not in request:
        if (request.content_length or 0) > BODY_BYTES_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_BYTES_MAX)
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                raise web.HTTPRequestEntityTooLarge(BODY_BYTES_MAX)
        request[_BODY] = bytes(body)
    return request[_BODY]


async def read_body(request: web.Request, decoder: Decoder[_Body]) -> _Body:
    """Reads and decodes the body of a request.

    Raises:
        FlowMeshError: the body is not of the decoder's type.
    """
    return decode_body(await body_of(request), decoder)


def decode_body(body: bytes, decoder: Decoder[_Body]) -> _Body:
    """Decodes a body; raises as :func:`read_body`."""
    try:
        return decode(decoder, body)
    except msgspec.DecodeError as e:
        raise FlowMeshError(
            f"the body cannot be read: {e}", where="body", remedy="see docs/api.md"
        ) from e
