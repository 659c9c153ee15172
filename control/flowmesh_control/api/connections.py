"""HTTP connections with timeouts, so that a silent client cannot keep one open.

A client has some seconds to send the headers of a request; a body may pause for a minute; an idle
connection is closed a little later. WebSockets, streamed answers and bodies that the control plane
itself is slow to read are exempt. Connections that have shown no valid token are limited in number
(``auth.unverified_connections``).
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from flowmesh_control.auth.unverified_connections import UnverifiedConnections, peer_of
from flowmesh_control.settings import CONNECTIONS_MAX, CONNECTIONS_PER_PEER
from flowmesh_core.errors import FlowMeshError

_Result = TypeVar("_Result")

HEADER_S = 10.0
BODY_PAUSE_S = 60.0
KEEP_ALIVE_S = 75.0
_TOO_MANY_TEXT = (
    b'{"error":{"message":"too many connections have shown no valid token","where":"connection",'
    b'"remedy":"try again in a second; where many users share an address, raise '
    b'gateway.connections.perPeer","problems":[]}}'
)
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_TOO_MANY_TEXT), _TOO_MANY_TEXT)


class BodyPausedError(FlowMeshError, TimeoutError):
    """The client stopped sending a request's body."""


@dataclass(frozen=True, slots=True)
class ConnectionTimes:
    """How long a connection may be silent, in seconds.

    Attributes:
        header_s: until the headers of a request are complete.
        body_pause_s: between two parts of a body.
        keep_alive_s: between two requests.
    """

    header_s: float = HEADER_S
    body_pause_s: float = BODY_PAUSE_S
    keep_alive_s: float = KEEP_ALIVE_S


class TimedRequestHandler(web.RequestHandler):
    """A connection that is closed when its client is silent for too long, or has too many."""

    __slots__ = (
        "_body",
        "_body_timer",
        "_header_timer",
        "_times",
        "_unverified",
        "_unverified_peer",
        "_work",
    )

    def __init__(
        self,
        *args: Any,
        times: ConnectionTimes,
        unverified: UnverifiedConnections,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, keepalive_timeout=times.keep_alive_s, **kwargs)
        self._times = times
        self._unverified = unverified
        self._unverified_peer: str | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._body: Any = None
        self._work: set[asyncio.Task[Any]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the timeout of the first request's headers, or refuses the connection."""
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("peername"))
        if self._unverified.add(peer) is not None:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(_TOO_MANY)
            self.force_close()
            return
        self._unverified_peer = peer
        self._await_header()

    def verified(self) -> None:
        """As :meth:`VerifiableConnection.verified`."""
        if self._unverified_peer is not None:
            self._unverified.remove(self._unverified_peer)
            self._unverified_peer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stops the timers and cancels the work that only this client waits for."""
        for task in self._work:
            task.cancel()
        self.verified()
        self._stop_header()
        self._stop_body()
        self._body = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Restarts the timers as a request begins, continues or ends."""
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._stop_header()
            self._body = self._messages[-1][1] if self._messages else None
        elif data and self._waits_for_request() and self._header_timer is None:
            self._await_header()  # the next request of a keep-alive connection has begun
        self._await_body()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """As aiohttp's, but a client that has disconnected is not an error to log.

        Raises:
            ConnectionResetError: the client disconnected.
        """
        if self.transport is None and isinstance(exc, ConnectionResetError):
            raise exc
        return super().handle_error(request, status, exc, message)

    async def during(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Awaits work that is cancelled when the client disconnects.

        Raises:
            ConnectionResetError: the client disconnected, and the work was cancelled.
        """
        task = self._loop.create_task(work)
        self._work.add(task)
        if self.transport is None:  # the client has disconnected already
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self.transport is None:
                raise ConnectionResetError("the client left") from None
            raise
        finally:
            self._work.discard(task)

    def log_exception(self, *args: Any, **more: Any) -> None:
        """Logs an exception, but for bytes that are no body; they are not worth a log line."""
        if not isinstance(more.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **more)

    def _waits_for_request(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _await_header(self) -> None:
        self._header_timer = self._loop.call_later(self._times.header_s, self._header_late)

    def _stop_header(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_late(self) -> None:
        self._header_timer = None
        if not self._request_count or self._waits_for_request():
            self.force_close()

    def _await_body(self) -> None:
        self._stop_body()
        if self._body is not None and not self._body.is_eof():
            self._body_timer = self._loop.call_later(self._times.body_pause_s, self._body_late)
        else:
            self._body = None

    def _stop_body(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _body_late(self) -> None:
        self._body_timer = None
        if self._body is None or self._body.is_eof():
            return
        if self._reading_paused:  # the control plane is slow, not the client
            self._await_body()
            return
        self._body.set_exception(
            BodyPausedError(
                f"the client sent no more of the body for {self._times.body_pause_s:g} s",
                where="body",
                remedy="send the request again without a pause",
            )
        )


async def while_connected(request: web.Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Awaits work for a request, and cancels it when the client disconnects.

    Raises:
        ConnectionResetError: the client disconnected.
    """
    assert isinstance(request.protocol, TimedRequestHandler)
    return await request.protocol.during(work)


class TimedRunner(web.AppRunner):
    """Serves an application on connections with timeouts and limits."""

    def __init__(
        self,
        app: web.Application,
        *,
        times: ConnectionTimes | None = None,
        unverified: UnverifiedConnections | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(app, **kwargs)
        self._times = times or ConnectionTimes()
        self._unverified = unverified or UnverifiedConnections(
            CONNECTIONS_PER_PEER, CONNECTIONS_MAX
        )

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _TimedServer(server, self._times, self._unverified)


class _TimedServer(web.Server):
    """Serves each connection by a :class:`TimedRequestHandler`."""

    def __init__(
        self, server: web.Server, times: ConnectionTimes, unverified: UnverifiedConnections
    ) -> None:
        super().__init__(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            **server._kwargs,
        )
        self._times = times
        self._unverified = unverified

    def __call__(self) -> web.RequestHandler:
        return TimedRequestHandler(
            self,
            loop=self._loop,
            times=self._times,
            unverified=self._unverified,
            **self._kwargs,
        )
