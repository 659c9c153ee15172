"""OpenAI's endpoints: checks a request, has a replica answer it, and passes the answer on."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from aiohttp import web

from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.prompt_texts import prompt_texts
from flowmesh_core.openai.request import OpenAiRequest, check_request
from flowmesh_core.protocol.serving import DEADLINE, LOST, OK, CallEnded, Piece, ServiceCall
from flowmesh_core.serving.route.prefix_affinity import prefix_key
from flowmesh_serving.call_spans import CallSpans
from flowmesh_serving.calls.calls import Calls, PendingCall
from flowmesh_serving.calls.random_names import new_call_id
from flowmesh_serving.errors import (
    deadline_exceeded,
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
from flowmesh_serving.http.whole_response import WholeResponse, refusal_of
from flowmesh_serving.metrics import RouterMetrics, ServiceMetrics
from flowmesh_serving.service_table import Caller, ServiceTable

_MS = 1000
_HUB_GRACE_S = 1.0
_REQUEST_ID = "X-Flowmesh-Request"
_CANCELLED, _FAILED, _REFUSED, _SLOW = "cancelled", "failed", "refused", "client-slow"
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
        spans: CallSpans | None,
    ) -> None:
        self._services = services
        self._spans = spans
        self._users = users
        self._calls = calls
        self._in_flight = in_flight
        self._connections = connections
        self._limits = limits
        self._metrics = metrics

    async def models(self, request: web.Request) -> web.Response:
        """Lists the models that the caller may call."""
        try:
            callers = await self._callers(request)
        except OpenAiError as error:
            return response_of(error)
        return _json({"object": "list", "data": [self._model(c) for c in callers]})

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
        return _json(self._model(caller))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a chat, completions or embeddings request."""
        found = await self.respond(AiohttpRequest(request), request)
        return found.for_aiohttp() if isinstance(found, WholeResponse) else found

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Returns whether a request has the token of a service; others take a while to review."""
        return caller_of(headers, self._services) is not None

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
        metrics = answering = None
        outcome = _REFUSED
        try:
            caller = caller_of(request.headers, self._services)
            if caller is None:
                if by_aiohttp is None:
                    raise unauthorized()
                caller = await self._users.of_model(by_aiohttp)
            metrics = self._metrics.of_service(caller.service.service)
            with (
                self._in_flight.slot(caller),
                self._connections.busy(request.connection),
                metrics.track_in_flight(),
            ):
                outcome = _CANCELLED
                checked = await self._checked(request, caller)
                call = self._call(request, checked, caller)
                answering = _Answering(
                    by_aiohttp, self._calls, metrics, self._limits, checked.answers
                )
                service = caller.service.service
                key = self._key(checked, caller)
                response, outcome = await answering.run(service, call, key, began_s)
                return response
        except OpenAiError as error:
            outcome = outcome_of(error)
            if outcome != _FAILED:
                self._metrics.refused.labels(error.code or "invalid").inc()
            return refusal_of(error)
        finally:
            took_s = time.monotonic() - began_s
            if metrics is not None:
                metrics.count(outcome, took_s)
            if self._spans is not None and answering is not None:
                self._spans.record(
                    checked,
                    request.headers,
                    service=service,
                    tenant=call.tenant,
                    outcome=outcome,
                    ended=answering.ended,
                    took_s=took_s,
                )

    async def _callers(self, request: web.Request) -> list[Caller]:
        caller = caller_of(request.headers, self._services)
        return [caller] if caller is not None else await self._users.all_of(request)

    async def _checked(self, request: IncomingRequest, caller: Caller) -> OpenAiRequest:
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
        return checked

    def _call(
        self, request: IncomingRequest, checked: OpenAiRequest, caller: Caller
    ) -> ServiceCall:
        return ServiceCall(
            call_id=new_call_id(),
            replica_id="",
            path=checked.path,
            model=checked.model,
            body=msgspec.json.encode(checked.body),
            stream=checked.is_stream,
            budget_ms=int(timeout_s(request.headers, caller.service.timeout_s) * _MS),
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
        answers: int,
    ) -> None:
        self._request = request
        self._calls = calls
        self._metrics = metrics
        self._limits = limits
        self._answers = answers
        self.ended: CallEnded | None = None

    async def run(
        self, service: str, call: ServiceCall, key: str, began_s: float
    ) -> tuple[WholeResponse | web.StreamResponse, str]:
        """Returns the response, and the outcome for the metrics.

        Args:
            service: ``namespace/name``.
            call: what is asked.
            key: that its replica is chosen by.
            began_s: when the request came, by the monotonic clock.

        Raises:
            OpenAiError: no byte of an answer has been sent.
        """
        # The hub ends a call at its deadline; the grace is for a hub that does not answer.
        within_s = call.budget_ms / _MS + _HUB_GRACE_S
        pending, reply = await self._calls.begin(service, call, within_s, key)
        try:
            if isinstance(reply, CallEnded):
                return self._whole(call, reply)
            self._metrics.begin_stream(time.monotonic() - began_s)
            return await self._stream(pending, reply)
        finally:
            self._calls.end(pending)

    def _whole(self, call: ServiceCall, ended: CallEnded) -> tuple[WholeResponse, str]:
        if ended.outcome == DEADLINE:
            raise deadline_exceeded()
        if ended.outcome == LOST:
            raise lost_replica()
        self._count(ended)
        header = (_REQUEST_ID, call.call_id)
        return WholeResponse(ended.body, ended.status, header), ended.outcome

    async def _stream(self, pending: PendingCall, first: Piece) -> tuple[web.StreamResponse, str]:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                _REQUEST_ID: pending.call_id,
            }
        )
        assert self._request is not None, "a hub streams only what was asked as a stream"
        began_s = time.monotonic()
        await response.prepare(self._request)
        try:
            ended = await self._pass_on(pending, first, response)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            return response, _SLOW
        except ConnectionError:
            return response, _CANCELLED
        self._count(ended)
        self._count_token_times(ended, time.monotonic() - began_s)
        with contextlib.suppress(ConnectionError):
            if ended.outcome != OK:
                await response.write(_error_event(ended))
            await response.write_eof()
        return response, ended.outcome

    async def _pass_on(
        self, pending: PendingCall, reply: Piece | CallEnded, response: web.StreamResponse
    ) -> CallEnded:
        """Writes pieces until the stream ends.

        Raises:
            TimeoutError: the client takes nothing.
            ConnectionError: it is gone.
        """
        async with asyncio.timeout(None) as timeout:
            slow_client = SlowClientTimer(timeout, self._limits.slow_client_s)
            try:
                while isinstance(reply, Piece):
                    with slow_client:
                        await response.write(reply.data)
                    self._calls.add_credit(pending, len(reply.data))
                    reply = await self._calls.next(pending)
            finally:
                slow_client.close()
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
    return b"data: " + body + b"\n\n"


def _may_call_tools(request: OpenAiRequest) -> bool:
    """Whether the answer may have calls of tools, which vLLM reads with a parser."""
    return bool(request.body.get("tools")) and request.body.get("tool_choice") != "none"


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
