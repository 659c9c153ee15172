"""Connections of clients, bounded in number and in time, so that silent ones harm no others.

A connection has some seconds for the headers of a request, and a client some for taking an answer.
Where as many are open as may be, the one that has been without an admitted request for longest is
closed for a new one: a flood of idle connections, with or without tokens, keeps none out for long.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

from flowmesh_core.protocol.framed_connection import READ_BYTES
from flowmesh_serving.errors import malformed_request, response_of
from flowmesh_serving.http.whole_requests import WholeRequest, WholeRequestHandler, is_whole

_KEEP_ALIVE_S = 75.0
_LINGER_S = 1.0
_SERVER_ERRORS = 500


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        most: open at once.
        header_s: until the headers of a request are complete.
        slow_client_s: how long a client may take nothing of an answer.
    """

    most: int
    header_s: float
    slow_client_s: float


class Connections:
    """The open connections of a router.

    Attributes:
        limits: they hold for each.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._idle: dict[ClientConnection, None] = {}
        self._open: set[ClientConnection] = set()

    @property
    def count(self) -> int:
        """Open connections."""
        return len(self._open)

    def opened(self, connection: "ClientConnection") -> None:
        """Counts a connection; closes the one that is idle for longest where there are too many."""
        if len(self._open) >= self.limits.most:
            oldest = next(iter(self._idle), connection)
            self.closed(oldest)
            oldest.force_close()
            if oldest is connection:
                return
        self._open.add(connection)
        self._idle[connection] = None

    def closed(self, connection: "ClientConnection") -> None:
        """Forgets a connection; may be called more than once."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    @contextlib.contextmanager
    def busy(self, connection: "ClientConnection") -> Iterator[None]:
        """Keeps the connection of a request that was admitted open during the block."""
        self.begin(connection)
        try:
            yield
        finally:
            self.end(connection)

    def begin(self, connection: "ClientConnection") -> None:
        """Keeps a connection open, as a request on it was admitted."""
        self._idle.pop(connection, None)

    def end(self, connection: "ClientConnection") -> None:
        """Lets a connection be closed again for another one."""
        if connection in self._open:
            self._idle[connection] = None


class ClientConnection(web.RequestHandler):
    """A connection that is closed when its client is silent for too long.

    A request that came whole is passed to its handler at once. Meanwhile the task of aiohttp, which
    waits for messages, sleeps: what comes after the request waits for its answer.
    """

    __slots__ = (
        "_connections",
        "_header_timer",
        "_idle_waiter",
        "_slow_timer",
        "_whole",
        "_wholes",
    )

    def __init__(
        self,
        *args: Any,
        connections: Connections,
        wholes: Sequence[WholeRequestHandler],
        **more: Any,
    ) -> None:
        """Answers requests that came whole with the first of ``wholes`` that takes them."""
        super().__init__(*args, keepalive_timeout=_KEEP_ALIVE_S, lingering_time=_LINGER_S, **more)
        self._connections = connections
        self._wholes = wholes
        self._whole: WholeRequest | None = None
        self._idle_waiter: asyncio.Future[None] | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._await_header()
        self._connections.opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop."""
        self._connections.closed(self)
        self._stop_header()
        self._stop_slow()
        whole, self._whole = self._whole, None
        super().connection_lost(exc)
        if whole is not None and whole.on_gone is not None:
            whole.on_gone()

    def data_received(self, data: bytes) -> None:
        """Stops the time of headers when they are complete, and starts that of the next ones."""
        before = self._request_count
        waiter, self._waiter = self._waiter, None  # so that no message wakes aiohttp's task yet
        super().data_received(data)
        if waiter is not None and not self._begin_whole(waiter):
            self._go_on(waiter)
        if self._request_count > before:
            self._stop_header()
        elif data and self._header_timer is None and self._waits_for_request():
            self._await_header()

    def pause_writing(self) -> None:
        """Called by the event loop when the client does not take what it is sent."""
        super().pause_writing()
        if self._slow_timer is None and self.transport is not None:
            # A stream ends by itself after as long; this is for whole answers.
            after_s = self._connections.limits.slow_client_s + 1.0
            self._slow_timer = self._loop.call_later(after_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Called by the event loop when the client has taken enough."""
        self._stop_slow()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns OpenAI's error for bytes that are no request; they are not worth a log line."""
        if status >= _SERVER_ERRORS or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        text = (message or "it cannot be read").split("\n", 1)[0]
        response = response_of(malformed_request(status, text))
        response.force_close()
        return response

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Logs an exception, but for bytes that are no body; they are not worth a log line."""
        if not isinstance(more.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **more)

    def respond(self, request: WholeRequest, response: bytes) -> None:
        """Sends the response of a request that came whole; does nothing if that has ended."""
        if self._whole is not request:
            return
        self._whole = None
        if self.transport is not None:
            self.transport.write(response)
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)  # of shutdown
        self._next_keepalive_close_time = self._loop.time() + _KEEP_ALIVE_S
        if self._keepalive_handle is None:
            due_s = self._next_keepalive_close_time
            self._keepalive_handle = self._loop.call_at(due_s, self._process_keepalive)
        waiter, self._idle_waiter = self._idle_waiter, None
        assert waiter is not None
        self._go_on(waiter)

    def _begin_whole(self, waiter: "asyncio.Future[None]") -> bool:
        """Passes the only message on where it is a whole request; returns False where not."""
        if len(self._messages) != 1 or waiter.done() or self._paused:
            return False
        message, payload = self._messages[0]
        if not isinstance(message, RawRequestMessage) or not is_whole(message, payload):
            return False
        size = payload.total_bytes
        handler = next((known for known in self._wholes if known.takes(message, size)), None)
        if handler is None:
            return False
        self._messages.popleft()
        body = payload.read_nowait()
        request = self._whole = WholeRequest(self, message.path, message.headers, body)
        self._idle_waiter, self._request_in_progress = waiter, True
        if handler.begin(request):
            assert self._parser is not None
            self._parser.message_consumed()
            return True
        self._whole = self._idle_waiter = None
        self._request_in_progress = False
        self._messages.append((message, _rewound(payload, body, self)))
        return False

    def _go_on(self, waiter: "asyncio.Future[None]") -> None:
        """Lets aiohttp's task go on with the messages that have come, or wait for the next."""
        self._waiter = waiter
        if waiter.done():
            return
        if self._close or self._force_close:
            waiter.cancel()
        elif self._messages:
            waiter.set_result(None)

    def _waits_for_request(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _await_header(self) -> None:
        after_s = self._connections.limits.header_s
        self._header_timer = self._loop.call_later(after_s, self._header_late)

    def _header_late(self) -> None:
        self._header_timer = None
        if not self._request_count or self._waits_for_request():
            self.force_close()

    def _stop_header(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_slow(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None


class RouterRunner(web.AppRunner):
    """Serves an application on bounded connections."""

    def __init__(
        self,
        app: web.Application,
        connections: Connections,
        wholes: Sequence[WholeRequestHandler] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(app, **kwargs)
        self._bounded = connections
        self._wholes = wholes

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _BoundedServer(server, self._bounded, self._wholes)


class _BoundedServer(web.Server):
    """Serves each connection by a :class:`ClientConnection`."""

    def __init__(
        self, server: web.Server, connections: Connections, wholes: Sequence[WholeRequestHandler]
    ) -> None:
        super().__init__(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            **server._kwargs,
        )
        self._bounded = connections
        self._wholes = wholes

    def __call__(self) -> web.RequestHandler:
        return ClientConnection(
            self,
            loop=self._loop,
            connections=self._bounded,
            wholes=self._wholes,
            **self._kwargs,
        )


def _rewound(read: StreamReader, body: bytes, connection: ClientConnection) -> StreamReader:
    """Returns a body that was read, as if it had not been."""
    if not body:  # aiohttp's reader of no body, which nothing changes
        return read
    low_bytes, _ = read.get_read_buffer_limits()
    again = StreamReader(connection, low_bytes, loop=connection._loop)
    again.feed_data(body)
    again.feed_eof()
    return again
