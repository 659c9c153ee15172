"""A response that is JSON and known as a whole, for both ways that a request may have come."""

from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_serving.errors import RETRY_AFTER_S, error_body

_OK = 200
_REASONS = {known.value: known.phrase for known in HTTPStatus}
_SERVER = f"Server: {SERVER_SOFTWARE}\r\n\r\n"


class WholeResponse(NamedTuple):
    """A response.

    Attributes:
        body: JSON.
        status: HTTP's.
        header: its name and value; None for no other than all responses have.
    """

    body: bytes
    status: int = _OK
    header: tuple[str, str] | None = None

    def encoded(self) -> bytes:
        """Returns the bytes for the client."""
        status, body = self.status, self.body
        more = "" if self.header is None else "{}: {}\r\n".format(*self.header)
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: application/json\r\n"
            f"{more}Content-Length: {len(body)}\r\nDate: {rfc822_formatted_time()}\r\n{_SERVER}"
        )
        return head.encode() + body

    def for_aiohttp(self) -> web.Response:
        """Returns aiohttp's object of it."""
        return web.Response(
            body=self.body,
            status=self.status,
            content_type="application/json",
            headers=None if self.header is None else dict((self.header,)),
        )


def refusal_of(error: OpenAiError) -> WholeResponse:
    """Returns the response for an error."""
    after = RETRY_AFTER_S.get(error.status)
    header = None if after is None else ("Retry-After", after)
    return WholeResponse(error_body(error), error.status, header)
