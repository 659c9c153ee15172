"""OpenAI's endpoints: checks a request, has a replica answer it, and passes the answer on."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web

from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.prompt_texts import prompt_texts
from flowmesh_core.openai.request import CHAT, OpenAiRequest, check_request
from flowmesh_core.protocol.serving import DEADLINE, LOST, OK, CallEnded, Piece, ServiceCall
from flowmesh_core.serving.route.prefix_affinity import prefix_key
from flowmesh_serving.call_spans import CallSpans
from flowmesh_serving.calls.calls import Calls, PendingCall
from flowmesh_serving.calls.random_names import new_call_id
from flowmesh_serving.errors import (
    CANCELLED,
    UNREFUSED,
    deadline_exceeded,
    error_body,
    has_stages,
    internal_error,
    lost_replica,
    no_tool_parser,
    outcome_of,
    response_of,
    unauthorized,
    unknown_model,
)
from flowmesh_serving.http.connections import Connections
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.incoming_request import AiohttpRequest, IncomingRequest
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.request_headers import caller_of, seed, timeout_s
from flowmesh_serving.http.slow_client import SlowClientTimer
from flowmesh_serving.http.whole_response import (
    EVENTS,
    WholeResponse,
    json_response,
    refusal_of,
)
from flowmesh_serving.metrics import RouterMetrics, ServiceMetrics
from flowmesh_serving.requests.idempotent_replies import IdempotentReplies, Turn
from flowmesh_serving.requests.request_record import RequestRecord, cancellable
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller, ServiceTable

_MS = 1000
_HUB_GRACE_S = 1.0
_REFUSED, _SLOW = "refused", "client-slow"
_EVENTS = f"{EVENTS}; charset=utf-8"
_bodies = msgspec.json.Decoder(dict)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of requests.

    Attributes:
        body_bytes: the largest body.
        body_s: how long a client may take to send it.
        slow_client_s: how long a client may take nothing of its stream.
    """

    body_bytes: int
    body_s: float
    slow_client_s: float


class StagedChats(Protocol):
    """The part of services with stages that answers chats."""

    async def chat(self, request: web.Request, caller: Caller) -> web.StreamResponse | None:
        """Answers a chat; returns None for a service that is not offered as a chat model."""
        ...


class OpenAiEndpoints:
    """The handlers of ``/v1/``."""

    def __init__(
        self,
        services: ServiceTable,
        calls: Calls,
        in_flight: InFlightRequests,
        connections: Connections,
        limits: HttpLimits,
        metrics: RouterMetrics,
        users: KubernetesCallers,
        chats: StagedChats,
        requests: RequestTable,
        replies: IdempotentReplies,
        spans: CallSpans | None,
    ) -> None:
        self._services = services
        self._spans = spans
        self._users = users
        self._chats = chats
        self._calls = calls
        self._in_flight = in_flight
        self._connections = connections
        self._limits = limits
        self._metrics = metrics
        self._requests = requests
        self._replies = replies

    async def models(self, request: web.Request) -> web.Response:
        """Lists the models that the caller may call."""
        try:
            callers = await self._callers(request)
        except OpenAiError as error:
            return response_of(error)
        return json_response({"object": "list", "data": [self._model(c) for c in callers]})

    async def model(self, request: web.Request) -> web.Response:
        """Shows one model."""
        try:
            name = request.match_info["model"]
            callers = await self._callers(request)
            caller = next((c for c in callers if c.service.model == name), None)
            if caller is None:
                raise unknown_model(name)
        except OpenAiError as error:
            return response_of(error)
        return json_response(self._model(caller))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a chat, completions or embeddings request."""
        found = await self.respond(AiohttpRequest(request), request)
        return found.for_aiohttp() if isinstance(found, WholeResponse) else found

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Returns whether a request has the token of a service without stages.

        Those of other tokens take a while to review.
        """
        caller = caller_of(headers, self._services)
        return caller is not None and caller.service.graph is None

    async def respond(
        self, request: IncomingRequest, by_aiohttp: web.Request | None
    ) -> WholeResponse | web.StreamResponse:
        """Returns the response, after it where it was streamed.

        Args:
            request: that is answered.
            by_aiohttp: aiohttp's object of it; None for one that came whole, which has the token
                of a service and wants no stream.
        """
        began_s = time.monotonic()
        metrics = answering = record = failure = None
        outcome = _REFUSED
        try:
            caller = await self._caller(request, by_aiohttp)
            answered = await self._by_stages(caller, by_aiohttp)
            if answered is not None:
                return answered
            metrics = self._metrics.of_service(caller.service.service)
            with (
                self._in_flight.slot(caller),
                self._connections.busy(request.connection),
                metrics.track_in_flight(),
            ):
                outcome = CANCELLED
                checked, body = await self._checked(request, caller)
                within_s = timeout_s(request.headers, caller.service.timeout_s)
                asked = request.path, body
                with await self._replies.turn(caller, request.headers, asked, within_s) as turn:
                    if turn.reply is not None:
                        outcome = OK
                        return turn.reply
                    call = self._call(request, checked, caller, within_s - turn.waited_s)
                    record = self._begin(call, caller)
                    answering = _Answering(
                        by_aiohttp, self._calls, metrics, self._limits, checked, record, turn
                    )
                    key = self._key(checked, caller)
                    with cancellable(record):
                        response, outcome = await answering.run(call, key, began_s)
                    return response
        except OpenAiError as error:
            failure, outcome = error, outcome_of(error)
            if outcome not in UNREFUSED:
                self._metrics.refused.labels(error.code or "invalid").inc()
            return refusal_of(error, () if record is None else record.headers)
        finally:
            took_s = time.monotonic() - began_s
            if metrics is not None:
                metrics.count(outcome, took_s)
            if record is not None:
                self._requests.end(record, outcome, failure)
            if self._spans is not None and record is not None and answering is not None:
                self._spans.record(
                    checked,
                    request.headers,
                    service=record.service,
                    tenant=call.tenant,
                    outcome=outcome,
                    ended=answering.ended,
                    took_s=took_s,
                )

    def _begin(self, call: ServiceCall, caller: Caller) -> RequestRecord:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in one"
        return self._requests.begin(call.call_id, caller, call.path, task.cancel)

    async def _caller(self, request: IncomingRequest, by_aiohttp: web.Request | None) -> Caller:
        caller = caller_of(request.headers, self._services)
        if caller is None and by_aiohttp is not None:
            caller = await self._users.of_model(by_aiohttp)
        if caller is None:
            raise unauthorized()
        return caller

    async def _by_stages(
        self, caller: Caller, by_aiohttp: web.Request | None
    ) -> web.StreamResponse | None:
        """Returns the response of a service with stages to a chat; None for others."""
        if caller.service.chat is None or by_aiohttp is None or by_aiohttp.path != CHAT:
            return None
        return await self._chats.chat(by_aiohttp, caller)

    async def _callers(self, request: web.Request) -> list[Caller]:
        caller = caller_of(request.headers, self._services)
        return [caller] if caller is not None else await self._users.all_of(request)

    async def _checked(
        self, request: IncomingRequest, caller: Caller
    ) -> tuple[OpenAiRequest, bytes]:
        """Returns a request that its service answers, and its body as it came."""
        data = await request.read(self._limits.body_bytes, self._limits.body_s)
        try:
            body = decode(_bodies, data)
        except msgspec.DecodeError as e:
            raise OpenAiError(
                f"The request's body is not a JSON object: {e}", code="invalid_json"
            ) from None
        checked = check_request(request.path, body)
        if checked.model != caller.service.model:
            raise unknown_model(checked.model)
        if caller.service.graph is not None:
            raise has_stages(caller.service.service)
        if _may_call_tools(checked) and not caller.service.tool_parser:
            raise no_tool_parser()
        return checked, data

    def _call(
        self, request: IncomingRequest, checked: OpenAiRequest, caller: Caller, within_s: float
    ) -> ServiceCall:
        return ServiceCall(
            call_id=new_call_id(),
            replica_id="",
            path=checked.path,
            model=checked.model,
            body=msgspec.json.encode(checked.body),
            stream=checked.is_stream,
            budget_ms=max(0, int(within_s * _MS)),
            tenant=caller.namespace,
            seed=seed(request.headers, caller),
            tool_parser=caller.service.tool_parser,
        )

    def _key(self, checked: OpenAiRequest, caller: Caller) -> str:
        """Returns the key of a prompt's beginning; empty where one replica is all there is."""
        if self._calls.replicas.count(caller.service.service) <= 1:
            return ""
        return prefix_key(caller.namespace, prompt_texts(checked))

    def _model(self, caller: Caller) -> dict[str, object]:
        service = caller.service
        return {
            "id": service.model,
            "object": "model",
            "created": int(service.created_s),
            "owned_by": service.service.partition("/")[0],
            "ready_replicas": self._calls.replicas.count(service.service),
        }


class _Answering:
    """The answer of one request.

    Attributes:
        ended: what the replica said at the end; None where it did not.
    """

    def __init__(
        self,
        request: web.Request | None,
        calls: Calls,
        metrics: ServiceMetrics,
        limits: HttpLimits,
        checked: OpenAiRequest,
        record: RequestRecord,
        turn: Turn,
    ) -> None:
        self._request = request
        self._calls = calls
        self._metrics = metrics
        self._limits = limits
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
            self._metrics.figures.ttft.observe(time.monotonic() - began_s)
            return await self._stream(pending, reply)
        finally:
            self._calls.end(pending)

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
                "Content-Type": _EVENTS,
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
            reply = WholeResponse(b"", headers=self._record.headers, content_type=_EVENTS)
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
                slow_client = SlowClientTimer(timeout, self._limits.slow_client_s)
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
            self._metrics.figures.tpot.observe(seconds / following)


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


def _may_call_tools(request: OpenAiRequest) -> bool:
    """Whether the answer may have calls of tools, which vLLM reads with a parser."""
    return bool(request.body.get("tools")) and request.body.get("tool_choice") != "none"
