"""Requests that came whole: their bodies were in the socket with their headers, as most are.

Such a request needs no task that waits for its body. A connection passes it to its handler at once,
on the event loop, and writes the response in one piece when it is answered. Everything else goes
aiohttp's way: bodies that are still coming, encoded bodies, streams, and clients that want their
connection closed.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE, HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_serving.errors import RETRY_AFTER_S, error_body

if TYPE_CHECKING:
    from flowmesh_serving.http.connections import ClientConnection

_SERVER = f"Server: {SERVER_SOFTWARE}\r\n\r\n"
_OK = 200
_REASONS = {known.value: known.phrase for known in HTTPStatus}


class WholeRequest:
    """A request that is answered once.

    Attributes:
        connection: that it came on.
        path: as it was sent.
        headers: by name, in any case.
        body: all of it.
        on_gone: called where its client is gone before the answer.
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
        self.on_gone: Callable[[], None] = _ignore

    def answer(self, body: bytes, status: int = _OK, more_headers: str = "") -> None:
        """Sends the response, which is JSON; does nothing where the client is gone.

        Args:
            body: of the response.
            status: HTTP's.
            more_headers: lines, each with its end.
        """
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: application/json\r\n"
            f"{more_headers}Content-Length: {len(body)}\r\nDate: {rfc822_formatted_time()}\r\n"
        )
        self.connection.respond(self, (head + _SERVER).encode() + body)

    def refuse(self, error: OpenAiError) -> None:
        """Sends an error in OpenAI's shape."""
        after = RETRY_AFTER_S.get(error.status)
        more = "" if after is None else f"Retry-After: {after}\r\n"
        self.answer(error_body(error), error.status, more)


class WholeRequestHandler(Protocol):
    """Answers requests that came whole."""

    def takes(self, message: RawRequestMessage, size: int) -> bool:
        """Returns whether :meth:`begin` answers a request.

        Args:
            message: its headers.
            size: of its body.
        """
        ...

    def begin(self, request: WholeRequest) -> None:
        """Answers a request, now or later."""
        ...


def is_whole(message: RawRequestMessage, payload: StreamReader) -> bool:
    """Returns whether a request has come with nothing left to read, and needs nothing else."""
    return (
        payload.is_eof()
        and message.version == HttpVersion11
        and not (message.should_close or message.compression or message.chunked or message.upgrade)
        and "Expect" not in message.headers
    )


def _ignore() -> None:
    """Nothing has begun."""
