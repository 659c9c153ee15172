"""OpenAI's endpoints: checks a request, has a replica answer it, and passes the answer on."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import web

from flowmesh_core.catalog.adapter_ports import adapted_model, split_model
from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.prompt_texts import prompt_texts
from flowmesh_core.openai.request import CHAT, OpenAiRequest, check_request
from flowmesh_core.protocol.serving import ServiceCall
from flowmesh_core.serving.queue.request_priority import RequestPriority
from flowmesh_core.serving.route.prefix_affinity import prefix_key
from flowmesh_serving.call_spans import CallSpans
from flowmesh_serving.calls.calls import Calls
from flowmesh_serving.calls.random_names import new_call_id
from flowmesh_serving.errors import (
    CANCELLED,
    UNREFUSED,
    has_stages,
    no_tool_parser,
    outcome_of,
    response_of,
    unauthorized,
    unknown_adapter,
    unknown_model,
)
from flowmesh_serving.http.call_answer import CallAnswer
from flowmesh_serving.http.connections import Connections
from flowmesh_serving.http.idempotent_replies import REPLAYED, IdempotentReplies
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.incoming_request import AiohttpRequest, IncomingRequest
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.request_headers import caller_of, priority, seed, timeout_s
from flowmesh_serving.http.whole_response import WholeResponse, json_response, refusal_of
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.requests.request_record import RequestRecord, cancellable
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller, ServiceTable

_MS = 1000
_REFUSED = "refused"
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
        models = [model for c in callers for model in self._models(c)]
        return json_response({"object": "list", "data": models})

    async def model(self, request: web.Request) -> web.Response:
        """Shows one model."""
        try:
            name = request.match_info["model"]
            callers = await self._callers(request)
            models = (model for c in callers for model in self._models(c))
            found = next((model for model in models if model["id"] == name), None)
            if found is None:
                raise unknown_model(name)
        except OpenAiError as error:
            return response_of(error)
        return json_response(found)

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
        metrics = answering = record = code = None
        outcome = _REFUSED
        try:
            caller = await self._caller(request, by_aiohttp)
            answered = await self._by_stages(caller, by_aiohttp)
            if answered is not None:
                return answered
            metrics = self._metrics.of_service(caller.service.service)
            ranked = priority(request.headers)
            with (
                self._in_flight.slot(caller, ranked) as place,
                self._connections.busy(request.connection),
                metrics.track_in_flight(),
            ):
                outcome = CANCELLED
                checked, body = await self._checked(request, caller)
                within_s = timeout_s(request.headers, caller.service.timeout_s)
                asked = request.path, body
                with await self._replies.turn(caller, request.headers, asked, within_s) as turn:
                    if turn.reply is not None:
                        outcome = REPLAYED
                        return turn.reply
                    left_s = within_s - turn.waited_s
                    call = self._call(request, checked, caller, left_s, ranked)
                    record = place.record = self._begin(call, caller)
                    answering = CallAnswer(
                        by_aiohttp,
                        self._calls,
                        metrics,
                        self._limits.slow_client_s,
                        checked,
                        record,
                        turn,
                    )
                    key = self._key(checked, caller)
                    with cancellable(record):
                        response, outcome = await answering.run(call, key, began_s)
                    return response
        except OpenAiError as error:
            code, outcome = error.code, outcome_of(error)
            if outcome not in UNREFUSED:
                self._metrics.refused.labels(error.code or "invalid").inc()
            return refusal_of(error, () if record is None else record.headers)
        finally:
            took_s = time.monotonic() - began_s
            if metrics is not None:
                metrics.count(outcome, took_s)
            if record is not None:
                self._requests.end(record, outcome, code)
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
        _adapter(checked.model, caller)
        if caller.service.graph is not None:
            raise has_stages(caller.service.service)
        if _may_call_tools(checked) and not caller.service.tool_parser:
            raise no_tool_parser()
        return checked, data

    def _call(
        self,
        request: IncomingRequest,
        checked: OpenAiRequest,
        caller: Caller,
        within_s: float,
        ranked: RequestPriority,
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
            priority=ranked,
            adapter=_adapter(checked.model, caller),
            tool_parser=caller.service.tool_parser,
        )

    def _key(self, checked: OpenAiRequest, caller: Caller) -> str:
        """Returns the key of a prompt's beginning; empty where one replica is all there is."""
        if self._calls.replicas.count(caller.service.service) <= 1:
            return ""
        adapter = _adapter(checked.model, caller)
        salt = f"{caller.namespace}/{adapter}" if adapter else caller.namespace
        return prefix_key(salt, prompt_texts(checked))

    def _models(self, caller: Caller) -> list[dict[str, object]]:
        """Returns the model of a service, and those that its adapters make of it."""
        service, replicas = caller.service, self._calls.replicas
        model: dict[str, object] = {
            "id": service.model,
            "object": "model",
            "created": int(service.created_s),
            "owned_by": service.service.partition("/")[0],
            "ready_replicas": replicas.count(service.service),
        }
        adapted = [
            {
                **model,
                "id": adapted_model(service.model, name),
                "parent": service.model,
                "ready_replicas": replicas.count_with(service.service, name),
            }
            for name in service.adapters
        ]
        return [model, *adapted]


def _adapter(name: str, caller: Caller) -> str:
    """Returns the adapter that a request's name of the model chooses; empty for none.

    Raises:
        OpenAiError: the caller's service does not have this model, or this adapter.
    """
    service = caller.service
    if name == service.model:
        return ""
    model, adapter = split_model(name)
    if model != service.model:
        raise unknown_model(name)
    if adapter not in service.adapters:
        raise unknown_adapter(model, adapter, service.adapters)
    return adapter


def _may_call_tools(request: OpenAiRequest) -> bool:
    """Whether the answer may have calls of tools, which vLLM reads with a parser."""
    return bool(request.body.get("tools")) and request.body.get("tool_choice") != "none"
