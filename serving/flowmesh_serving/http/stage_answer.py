"""The answer of a request to a service with stages: whole, or as it is made."""

import asyncio
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import Piece, StageFailed
from flowmesh_serving.errors import CANCELLED, outcome_of, reply_impossible
from flowmesh_serving.http.idempotent_replies import Turn
from flowmesh_serving.http.reply_formats import ReplyFormat
from flowmesh_serving.http.whole_response import EVENT_STREAM, WholeResponse
from flowmesh_serving.requests.request_record import RequestRecord, cancellable
from flowmesh_serving.stages.stage_events import (
    StageReply,
    StreamedText,
    finish_reason_of,
    reply_of,
)
from flowmesh_serving.stages.stage_failures import error_of
from flowmesh_serving.stages.staged_requests import Event, PendingRequest, StagedRequests

_OK, _SLOW = "ok", "client-slow"


class StageAnswer:
    """The answer of one request."""

    def __init__(
        self,
        request: web.Request,
        staged: StagedRequests,
        pending: PendingRequest,
        events: asyncio.Queue[Event],
        fields: Mapping[str, Any],
        record: RequestRecord,
        turn: Turn,
        form: ReplyFormat,
    ) -> None:
        self._request = request
        self._staged = staged
        self._pending = pending
        self._events = events
        self._fields = fields
        self._record = record
        self._turn = turn
        self._form = form
        self._streamed = StreamedText(pending.graph.streamed)

    def end(self) -> None:
        """Frees what the request has at its hubs."""
        self._record.release = self._pending.release
        self._staged.end(self._pending)

    async def whole(self) -> web.Response:
        """Returns the whole reply.

        Raises:
            OpenAiError: there is none.
        """
        reply = await self._next()
        while isinstance(reply, Piece):
            reply = await self._next()
        self._record.release = self._pending.release
        response = WholeResponse(self._form.whole(reply), headers=self._record.headers)
        self._turn.answer(response, is_complete=True)
        return response.for_aiohttp()

    async def stream(self, slow_client_s: float) -> tuple[web.StreamResponse, str]:
        """Returns the answer of the last stage as it is made, then the reply; and the outcome.

        Raises:
            OpenAiError: no byte of an answer has been sent.
        """
        reply = await self._next()
        self._record.release = self._pending.release
        response = web.StreamResponse(
            headers={
                "Content-Type": EVENT_STREAM,
                "Cache-Control": "no-cache",
                **dict(self._record.headers),
            }
        )
        outcome = _OK
        try:
            await self._pass_on(reply, response, slow_client_s)
        except OpenAiError as error:
            if not response.prepared:
                raise
            self._record.settle()
            self._turn.fail(error)
            self._staged.end(self._pending)  # first, since the client may read slowly
            outcome = outcome_of(error, had_begun=True)
            await response.write(self._form.error(error))
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            return response, _SLOW
        except ConnectionError:
            return response, CANCELLED
        await response.write_eof()
        return response, outcome

    async def _pass_on(
        self, reply: Piece | StageReply, response: web.StreamResponse, slow_client_s: float
    ) -> None:
        """Writes pieces and the reply.

        Raises:
            OpenAiError: the request has failed, or was cancelled by its id.
            TimeoutError: the client takes nothing.
            ConnectionError: it is gone.
        """
        with cancellable(self._record):
            await response.prepare(self._request)
            while isinstance(reply, Piece):
                async with asyncio.timeout(slow_client_s):
                    texts = self._streamed.texts(reply.data)
                    events = b"".join(map(self._form.text, texts))
                    self._turn.record(events)
                    await response.write(events)
                self._staged.add_credit(self._pending, len(reply.data))
                reply = await self._next()
        self._record.settle()
        last = self._form.last(reply)
        self._turn.record(last)
        whole = WholeResponse(b"", headers=self._record.headers, content_type=EVENT_STREAM)
        self._turn.answer(whole, is_complete=True)
        await response.write(last)

    async def _next(self) -> Piece | StageReply:
        """Returns the next piece, or the reply.

        Raises:
            OpenAiError: the request has failed.
        """
        found = await self._events.get()
        if isinstance(found, Piece):
            return found
        if isinstance(found, StageFailed):
            raise error_of(found)
        graph, values = self._pending.graph, found.values
        try:
            fields = reply_of(graph, self._fields, values, self._streamed)
            if not self._form.answer:
                return StageReply(fields)
            reason = finish_reason_of(graph, self._form.answer, values, self._streamed)
        except FlowMeshError as error:
            raise reply_impossible(error) from error
        return StageReply(fields, reason)
