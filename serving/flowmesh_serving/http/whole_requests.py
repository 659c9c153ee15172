"""Requests that came whole: their bodies were in the socket with their headers, as most are.

Such a request needs no task that waits for its body. A connection passes it to its handler at once,
on the event loop, and writes the response in one piece when it is answered. Everything else goes
aiohttp's way: bodies that are still coming, encoded bodies, streams, and clients that want their
connection closed.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader

from flowmesh_serving.errors import body_too_large
from flowmesh_serving.http.whole_response import WholeResponse

if TYPE_CHECKING:
    from flowmesh_serving.http.connections import ClientConnection


class WholeRequest:
    """A request that is answered once.

    Attributes:
        connection: that it came on.
        path: as it was sent.
        headers: by name, in any case.
        body: all of it.
        on_gone: called where its client is gone before the answer; None for nothing.
    """

    __slots__ = ("body", "connection", "headers", "on_gone", "path")

    def __init__(
        self,
        connection: "ClientConnection",
        path: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> None:
        self.connection = connection
        self.path = path
        self.headers = headers
        self.body = body
        self.on_gone: Callable[[], object] | None = None

    async def read(self, most_bytes: int, within_s: float) -> bytes:
        """Returns the body; see ``IncomingRequest.read``."""
        del within_s
        if len(self.body) > most_bytes:
            raise body_too_large(most_bytes)
        return self.body

    def answer(self, response: WholeResponse) -> None:
        """Sends the response; does nothing where the client is gone."""
        self.connection.respond(self, response.encoded())


class WholeRequestHandler(Protocol):
    """Answers requests that came whole."""

    def takes(self, message: RawRequestMessage, size: int) -> bool:
        """Returns whether a request is for this handler.

        Args:
            message: its headers.
            size: of its body.
        """
        ...

    def begin(self, request: WholeRequest) -> bool:
        """Answers a request, now or later; returns False where it has to go aiohttp's way."""
        ...


def is_whole(message: RawRequestMessage, payload: StreamReader) -> bool:
    """Returns whether a request has come with nothing left to read, and needs nothing else."""
    return (
        payload.is_eof()
        and message.version == HttpVersion11
        and not (message.should_close or message.compression or message.chunked or message.upgrade)
        and "Expect" not in message.headers
    )
