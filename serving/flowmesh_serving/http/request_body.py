"""The body of a request, which its client may send slowly."""

import asyncio

from aiohttp import web


async def whole_body(request: web.Request, within_s: float) -> bytes:
    """Returns the body.

    Raises:
        TimeoutError: it has not come in time.
        aiohttp.web.HTTPRequestEntityTooLarge: it is larger than the application takes.
    """
    if request.content.is_eof():  # as most have: it came with the headers
        return await request.read()
    async with asyncio.timeout(within_s):
        return await request.read()
