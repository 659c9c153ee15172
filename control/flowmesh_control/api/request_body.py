"""Decodes the JSON body of a request; one that is malformed is a client error (400)."""

from typing import TypeVar

import msgspec
from aiohttp import web

from flowmesh_core.decoding import Decoder, decode
from flowmesh_core.errors import FlowMeshError

_Body = TypeVar("_Body")


async def read_body(request: web.Request, decoder: Decoder[_Body]) -> _Body:
    """Reads and decodes the body of a request.

    Raises:
        FlowMeshError: the body is not of the decoder's type.
    """
    return decode_body(await request.read(), decoder)


def decode_body(body: bytes, decoder: Decoder[_Body]) -> _Body:
    """Decodes a body; raises as :func:`read_body`."""
    try:
        return decode(decoder, body)
    except msgspec.DecodeError as e:
        raise FlowMeshError(
            f"the body cannot be read: {e}", where="body", remedy="see docs/api.md"
        ) from e
