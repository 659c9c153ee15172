"""The body of a request, which its client may send slowly."""

import asyncio

from aiohttp import web

from flowmesh_serving.errors import malformed_request

_BAD_REQUEST = 400


async def whole_body(request: web.Request, within_s: float) -> bytes:
    """Returns the body.

    Raises:
        OpenAiError: it is not encoded as its headers say.
        TimeoutError: it has not come in time.
        aiohttp.web.HTTPRequestEntityTooLarge: it is larger than the application takes.
    """
    try:
        if request.content.is_eof():  # as most have: it came with the headers
            return await request.read()
        async with asyncio.timeout(within_s):
            return await request.read()
    except web.RequestPayloadError as error:
        text = " ".join(str(error).split())
        raise malformed_request(_BAD_REQUEST, text) from None
