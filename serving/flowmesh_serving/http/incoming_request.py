"""What endpoints read of a request, whichever way it has come."""

from collections.abc import Mapping
from typing import Protocol

from aiohttp import web

from flowmesh_serving.errors import body_too_large, body_too_slow
from flowmesh_serving.http.connections import ClientConnection
from flowmesh_serving.http.request_body import whole_body


class IncomingRequest(Protocol):
    """A request."""

    @property
    def path(self) -> str:
        """Where it was sent."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, in any case."""
        ...

    @property
    def connection(self) -> ClientConnection:
        """On which it came."""
        ...

    async def read(self, most_bytes: int, within_s: float) -> bytes:
        """Returns the body.

        Raises:
            OpenAiError: it is too large, or does not come in time.
        """
        ...


class AiohttpRequest:
    """A request that comes by a handler of aiohttp.

    Attributes:
        web: aiohttp's object of it.
    """

    def __init__(self, request: web.Request) -> None:
        self.web = request

    @property
    def path(self) -> str:
        """See ``IncomingRequest.path``."""
        return self.web.path

    @property
    def headers(self) -> Mapping[str, str]:
        """See ``IncomingRequest.headers``."""
        return self.web.headers

    @property
    def connection(self) -> ClientConnection:
        """See ``IncomingRequest.connection``."""
        connection = self.web.protocol
        assert isinstance(connection, ClientConnection)
        return connection

    async def read(self, most_bytes: int, within_s: float) -> bytes:
        """See ``IncomingRequest.read``."""
        length = self.web.content_length
        if length is not None and length > most_bytes:
            raise body_too_large(most_bytes)
        try:
            body = await whole_body(self.web, within_s)
        except TimeoutError:
            raise body_too_slow(within_s) from None
        except web.HTTPRequestEntityTooLarge:
            raise body_too_large(most_bytes) from None
        if len(body) > most_bytes:
            raise body_too_large(most_bytes)
        return body
