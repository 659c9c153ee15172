"""The answer of a call of OpenAI's API: whole, or passed on as its replica makes it."""

import asyncio
import contextlib
import time

import msgspec
from aiohttp import web

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import OpenAiRequest
from flowmesh_core.protocol.serving import DEADLINE, LOST, OK, CallEnded, Piece, ServiceCall
from flowmesh_serving.calls.calls import Calls, PendingCall
from flowmesh_serving.errors import (
    CANCELLED,
    deadline_exceeded,
    error_body,
    internal_error,
    lost_replica,
    outcome_of,
)
from flowmesh_serving.http.idempotent_replies import Turn
from flowmesh_serving.http.slow_client import SlowClientTimer
from flowmesh_serving.http.whole_response import EVENT_STREAM, WholeResponse
from flowmesh_serving.metrics import ServiceMetrics
from flowmesh_serving.requests.call_record import call_record
from flowmesh_serving.requests.request_record import RequestRecord, cancellable

_MS = 1000
_HUB_GRACE_S = 1.0
_SLOW = "client-slow"


class CallAnswer:
    """The answer of one request.

    Attributes:
        ended: what the replica said at the end; None where it did not.
    """

    def __init__(
        self,
        request: web.Request | None,
        calls: Calls,
        metrics: ServiceMetrics,
        slow_client_s: float,
        checked: OpenAiRequest,
        record: RequestRecord,
        turn: Turn,
    ) -> None:
        self._request = request
        self._calls = calls
        self._metrics = metrics
        self._slow_client_s = slow_client_s
        self._answers = checked.answers
        self._record = record
        self._turn = turn
        self.ended: CallEnded | None = None

    async def run(
        self, call: ServiceCall, key: str, began_s: float
    ) -> tuple[WholeResponse | web.StreamResponse, str]:
        """Returns the response, and the outcome for the metrics.

        Args:
            call: what is asked.
            key: that its replica is chosen by.
            began_s: when the request came, by the monotonic clock.

        Raises:
            OpenAiError: no byte of an answer has been sent.
        """
        # The hub ends a call at its deadline; the grace is for a hub that does not answer.
        within_s = call.budget_ms / _MS + _HUB_GRACE_S
        pending = self._calls.begin(self._record.service, call, within_s, key)
        try:
            try:
                reply = await self._calls.first(pending)
            finally:
                self._record.release = pending.release
            if isinstance(reply, CallEnded):
                return self._whole(reply)
            self._record.has_begun = True
            self._metrics.begin_stream(time.monotonic() - began_s)
            return await self._stream(pending, reply)
        finally:
            self._calls.end(pending)
            self._record.calls = call_record(pending.replica_id, self.ended)

    def _whole(self, ended: CallEnded) -> tuple[WholeResponse, str]:
        if ended.outcome == DEADLINE:
            raise deadline_exceeded()
        if ended.outcome == LOST:
            raise lost_replica()
        self._count(ended)
        reply = WholeResponse(ended.body, ended.status, self._record.headers)
        self._turn.answer(reply, is_complete=ended.outcome == OK)
        return reply, ended.outcome

    async def _stream(self, pending: PendingCall, first: Piece) -> tuple[web.StreamResponse, str]:
        response = web.StreamResponse(
            headers={
                "Content-Type": EVENT_STREAM,
                "Cache-Control": "no-cache",
                **dict(self._record.headers),
            }
        )
        assert self._request is not None, "a hub streams only what was asked as a stream"
        began_s = time.monotonic()
        try:
            ended = await self._pass_on(pending, first, response)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            return response, _SLOW
        except ConnectionError:
            return response, CANCELLED
        except OpenAiError as error:
            return await self._break_off(pending, response, error)
        self._count(ended)
        self._count_token_times(ended, time.monotonic() - began_s)
        if ended.outcome == OK:
            reply = WholeResponse(b"", headers=self._record.headers, content_type=EVENT_STREAM)
            self._turn.answer(reply, is_complete=True)
        with contextlib.suppress(ConnectionError):
            if ended.outcome != OK:
                await response.write(_error_event(ended))
            await response.write_eof()
        return response, ended.outcome

    async def _break_off(
        self, pending: PendingCall, response: web.StreamResponse, error: OpenAiError
    ) -> tuple[web.StreamResponse, str]:
        """Ends a stream that was cancelled: first its call, since the client may read slowly.

        Raises:
            OpenAiError: no byte of an answer has been sent.
        """
        self._calls.end(pending)
        if not response.prepared:
            raise error
        self._turn.fail(error)
        with contextlib.suppress(ConnectionError):
            await response.write(_event(error_body(error)))
            await response.write_eof()
        return response, outcome_of(error)

    async def _pass_on(
        self, pending: PendingCall, reply: Piece | CallEnded, response: web.StreamResponse
    ) -> CallEnded:
        """Writes pieces until the stream ends.

        Raises:
            TimeoutError: the client takes nothing.
            ConnectionError: it is gone.
            OpenAiError: the request was cancelled by its id.
        """
        assert self._request is not None, "of a stream"
        with cancellable(self._record):
            await response.prepare(self._request)
            async with asyncio.timeout(None) as timeout:
                slow_client = SlowClientTimer(timeout, self._slow_client_s)
                try:
                    while isinstance(reply, Piece):
                        with slow_client:
                            await response.write(reply.data)
                        self._turn.record(reply.data)
                        self._calls.add_credit(pending, len(reply.data))
                        reply = await self._calls.next(pending)
                finally:
                    slow_client.close()
        self._record.settle()
        return reply

    def _count(self, ended: CallEnded) -> None:
        self.ended = ended
        self._metrics.figures.tokens_in += ended.tokens_in
        self._metrics.figures.tokens_out += ended.tokens_out

    def _count_token_times(self, ended: CallEnded, seconds: float) -> None:
        """Counts the time of a token after the first; answers of one request are made at once."""
        following = ended.tokens_out / self._answers - 1
        if ended.outcome == OK and following > 0:
            self._metrics.end_stream(seconds / following)


def _error_event(ended: CallEnded) -> bytes:
    """Returns the last event of a stream that broke off: it cannot be resumed."""
    match ended.outcome:
        case "deadline":
            error = deadline_exceeded()
        case "lost":
            error = lost_replica()
        case _:
            error = internal_error()
    body = ended.body or msgspec.json.encode(error.body())
    return _event(body)


def _event(body: bytes) -> bytes:
    return b"data: " + body + b"\n\n"
