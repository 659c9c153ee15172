"""``POST /v1/services/{namespace}/{name}:invoke``: requests to services with stages."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    DEADLINE,
    RunStages,
    StageFailed,
)
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_core.stages.stage_calls import COMPLETION
from flowmesh_core.stages.values import ValueReference
from flowmesh_serving.calls.replica_arrivals import ReplicaArrivals
from flowmesh_serving.errors import (
    CANCELLED,
    NO_REPLICA,
    UNREFUSED,
    outcome_of,
)
from flowmesh_serving.http.connections import Connections
from flowmesh_serving.http.idempotent_replies import REPLAYED, IdempotentReplies, Turn
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.incoming_request import AiohttpRequest
from flowmesh_serving.http.invoke_checks import InvokeChecks
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.openai import HttpLimits
from flowmesh_serving.http.reply_formats import (
    ChatFormat,
    InvokeFormat,
    RequestFormat,
)
from flowmesh_serving.http.request_headers import caller_of, timeout_s
from flowmesh_serving.http.stage_answer import StageAnswer
from flowmesh_serving.http.whole_response import EVENTS, refusal_of
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.requests.request_record import RequestRecord, cancellable
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.staged_requests import Event, PendingRequest, StagedRequests

_OK, _REFUSED = "ok", "refused"
_HUB_GRACE_S = 1.0
_MS = 1000


class InvokeEndpoint:
    """The handler of ``:invoke``."""

    def __init__(
        self,
        services: ServiceTable,
        staged: StagedRequests,
        checks: InvokeChecks,
        arrivals: ReplicaArrivals,
        in_flight: InFlightRequests,
        connections: Connections,
        limits: HttpLimits,
        metrics: RouterMetrics,
        users: KubernetesCallers,
        requests: RequestTable,
        replies: IdempotentReplies,
    ) -> None:
        self._services = services
        self._users = users
        self._staged = staged
        self._checks = checks
        self._arrivals = arrivals
        self._in_flight = in_flight
        self._connections = connections
        self._limits = limits
        self._metrics = metrics
        self._requests = requests
        self._replies = replies

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a request of the service's own form."""
        began_s = time.monotonic()
        try:
            service = f"{request.match_info['namespace']}/{request.match_info['name']}"
            caller = caller_of(request.headers, self._services)
            if caller is None:
                caller = await self._users.of_service(request, service)
            graph = self._checks.graph(service, caller)
        except OpenAiError as error:
            self._metrics.refused.labels(error.code or "invalid").inc()
            return refusal_of(error).for_aiohttp()
        return await self._respond(request, caller, graph, InvokeFormat(), began_s)

    async def chat(self, request: web.Request, caller: Caller) -> web.StreamResponse | None:
        """Answers a chat; returns None for a service that is not offered as a chat model."""
        graph, chat = self._services.graph(caller.service.service), caller.service.chat
        if graph is None or chat is None:
            return None
        streamed = ValueReference(graph.streamed, (COMPLETION,))
        form = ChatFormat(caller.service, chat, streams=graph.reply[chat.answer] == streamed)
        return await self._respond(request, caller, graph, form, time.monotonic())

    async def _respond(
        self,
        request: web.Request,
        caller: Caller,
        graph: LoadedGraph,
        form: RequestFormat,
        began_s: float,
    ) -> web.StreamResponse:
        incoming = AiohttpRequest(request)
        metrics = self._metrics.of_service(caller.service.service)
        record = code = pending = None
        outcome = _REFUSED
        try:
            waited_s = await self._admit(incoming, caller, graph)
            with (
                self._in_flight.slot(caller),
                self._connections.busy(incoming.connection),
                metrics.track_in_flight(),
            ):
                body = await incoming.read(self._limit_bytes(caller, form), self._limits.body_s)
                asked = form.asked(body, request.headers)
                fields = await self._fields(asked.request, caller, graph)
                outcome = CANCELLED
                with await self._turn(request, caller, body, waited_s) as turn:
                    if turn.reply is not None:
                        outcome = REPLAYED
                        return turn.reply.for_aiohttp()
                    waited_s += turn.waited_s
                    run = self._checks.run(
                        request.headers, caller, asked.request, waited_s, stream=asked.stream
                    )
                    record = self._begin(run, caller, request.path)
                    events: asyncio.Queue[Event] = asyncio.Queue()
                    keys = graph.keys_of(fields)
                    pending = self._staged.begin(
                        record.service, graph, run, events.put_nowait, keys
                    )
                    reply = form.reply(run.request_id, graph.streamed)
                    answering = StageAnswer(
                        request, self._staged, pending, events, fields, record, turn, reply
                    )
                    with cancellable(record):
                        response, outcome = await self._answered(answering, pending, events)
                    return response
        except OpenAiError as error:
            code, outcome = error.code, outcome_of(error, had_begun=record is not None)
            if outcome not in UNREFUSED:
                self._metrics.refused.labels(error.code or "invalid").inc()
            headers = () if record is None else record.headers
            return refusal_of(error, headers).for_aiohttp()
        finally:
            metrics.count(outcome, time.monotonic() - began_s)
            if record is not None:
                if pending is not None:
                    record.route = pending.run.route
                self._requests.end(record, outcome, code)
                if pending is not None and pending.trace is not None:
                    took_s = time.monotonic() - began_s
                    pending.trace.end(record, request.headers, took_s)

    async def _turn(
        self, request: web.Request, caller: Caller, body: bytes, waited_s: float
    ) -> Turn:
        """Returns the turn of a request among those with its idempotency key."""
        within_s = timeout_s(request.headers, caller.service.timeout_s) - waited_s
        answer = EVENTS if EVENTS in request.headers.get("Accept", "") else ""
        return await self._replies.turn(
            caller, request.headers, (request.path + answer, body), within_s
        )

    def _begin(self, run: RunStages, caller: Caller, path: str) -> RequestRecord:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in one"
        return self._requests.begin(run.request_id, caller, path, task.cancel)

    async def _admit(self, request: AiohttpRequest, caller: Caller, graph: LoadedGraph) -> float:
        """Admits a request, once each component has a replica; returns how long it waited."""
        loop = asyncio.get_running_loop()
        began_s = now_s = loop.time()
        while True:
            try:
                self._checks.admit(request.headers, caller, graph, now_s - began_s)
            except OpenAiError as error:
                if error.code != NO_REPLICA:
                    raise
                budget_s = self._checks.budget_s(request.headers, caller)
                until_s = began_s + min(self._arrivals.within_s, budget_s)
                with self._in_flight.slot(caller), self._connections.busy(request.connection):
                    if not await self._arrivals.one_before(until_s):
                        raise
                now_s = loop.time()
            else:
                return now_s - began_s

    def _limit_bytes(self, caller: Caller, form: RequestFormat) -> int:
        """Returns the largest body: a chat may have more messages than the service's request."""
        is_chat = isinstance(form, ChatFormat)
        return self._limits.body_bytes if is_chat else self._checks.limit_bytes(caller)

    async def _fields(
        self, request: bytes, caller: Caller, graph: LoadedGraph
    ) -> Mapping[str, Any]:
        fields = self._checks.fields(request, caller, graph)
        await self._services.requests.check(caller.service.service, fields, len(request))
        return fields

    async def _answered(
        self, answering: StageAnswer, pending: PendingRequest, events: "asyncio.Queue[Event]"
    ) -> tuple[web.StreamResponse, str]:
        run = pending.run
        late = StageFailed(run.request_id, run.route.version, "", "", DEADLINE)
        timer = asyncio.get_running_loop().call_later(
            run.budget_ms / _MS + _HUB_GRACE_S, events.put_nowait, late
        )
        try:
            if run.stream:
                return await answering.stream(self._limits.slow_client_s)
            return await answering.whole(), _OK
        finally:
            timer.cancel()
            answering.end()
