"""The description of the API for programs: OpenAPI, and the header with the API's version."""

import asyncio
import gzip

from aiohttp import hdrs, web

from flowmesh_api.v1.openapi import encoded_document
from flowmesh_api.v1.operations import GET_OPENAPI
from flowmesh_api.v1.version import API_VERSION, VERSION_HEADER


async def name_version(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Names the version of the API in a response; a signal of the application."""
    response.headers[VERSION_HEADER] = API_VERSION


class DescriptionHandlers:
    """The handler of ``/openapi.json``, which needs no token: it has nothing of this fabric."""

    def __init__(self) -> None:
        self._bodies: tuple[bytes, bytes] | None = None

    def open_routes(self) -> list[web.RouteDef]:
        """Returns the route of this class."""
        return [web.get(GET_OPENAPI.path, self.show)]

    async def show(self, request: web.Request) -> web.Response:
        """``GET /openapi.json`` → the description by OpenAPI 3.1."""
        if self._bodies is None:  # once, in a thread: it takes a tenth of a second
            self._bodies = await asyncio.to_thread(_bodies)
        plain, compressed = self._bodies
        headers: dict[str, str] = {hdrs.VARY: hdrs.ACCEPT_ENCODING}
        if "gzip" not in request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            return web.Response(body=plain, headers=headers, content_type="application/json")
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=compressed, headers=headers, content_type="application/json")


def _bodies() -> tuple[bytes, bytes]:
    plain = encoded_document()
    return plain, gzip.compress(plain, mtime=0)
