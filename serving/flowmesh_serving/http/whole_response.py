"""A response that is JSON and known as a whole, for both ways that a request may have come."""

from http import HTTPStatus
from typing import NamedTuple

import msgspec
from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_serving.errors import RETRY_AFTER_S, error_body

JSON, EVENTS = "application/json", "text/event-stream"
EVENT_STREAM = f"{EVENTS}; charset=utf-8"
_OK = 200
_REASONS = {known.value: known.phrase for known in HTTPStatus}
_SERVER = f"Server: {SERVER_SOFTWARE}\r\n\r\n"


class WholeResponse(NamedTuple):
    """A response.

    Attributes:
        body: JSON, or all events of a stream that has ended.
        status: HTTP's.
        headers: names and values of those that not all responses have.
        content_type: of the body.
    """

    body: bytes
    status: int = _OK
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = JSON

    def encoded(self) -> bytes:
        """Returns the bytes for the client."""
        status, body = self.status, self.body
        more = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {self.content_type}\r\n"
            f"{more}Content-Length: {len(body)}\r\nDate: {rfc822_formatted_time()}\r\n{_SERVER}"
        )
        return head.encode() + body

    def for_aiohttp(self) -> web.Response:
        """Returns aiohttp's object of it."""
        return web.Response(
            body=self.body,
            status=self.status,
            headers={"Content-Type": self.content_type, **dict(self.headers)},
        )


def json_response(value: object) -> web.Response:
    """Returns aiohttp's response of a value."""
    return web.Response(body=msgspec.json.encode(value), content_type=JSON)


def refusal_of(error: OpenAiError, headers: tuple[tuple[str, str], ...] = ()) -> WholeResponse:
    """Returns the response for an error.

    Args:
        error: that is answered.
        headers: of the request, where it had begun.
    """
    if (after := RETRY_AFTER_S.get(error.status)) is not None:
        headers = (*headers, ("Retry-After", after))
    return WholeResponse(error_body(error), error.status, headers)
