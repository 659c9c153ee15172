"""``POST /v1/services/{namespace}/{name}:invoke``: requests to services with stages."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    DEADLINE,
    Piece,
    RunStages,
    StageFailed,
)
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.replica_arrivals import ReplicaArrivals
from flowmesh_serving.errors import (
    CANCELLED,
    NO_REPLICA,
    UNREFUSED,
    outcome_of,
    reply_impossible,
)
from flowmesh_serving.http.connections import Connections
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.incoming_request import AiohttpRequest
from flowmesh_serving.http.invoke_checks import InvokeChecks
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.openai import HttpLimits
from flowmesh_serving.http.request_headers import caller_of, timeout_s
from flowmesh_serving.http.whole_response import EVENTS, WholeResponse, refusal_of
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.requests.idempotent_replies import IdempotentReplies, Turn
from flowmesh_serving.requests.request_record import RequestRecord, cancellable
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.stage_events import StreamedText, event, reply_of
from flowmesh_serving.stages.stage_failures import error_of
from flowmesh_serving.stages.staged_requests import Event, PendingRequest, StagedRequests

_OK, _REFUSED = "ok", "refused"
_SLOW = "client-slow"
_EVENTS = f"{EVENTS}; charset=utf-8"
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
        """Answers a request."""
        began_s = time.monotonic()
        incoming = AiohttpRequest(request)
        metrics = record = failure = None
        outcome = _REFUSED
        try:
            service = f"{request.match_info['namespace']}/{request.match_info['name']}"
            caller = caller_of(request.headers, self._services)
            if caller is None:
                caller = await self._users.of_service(request, service)
            graph = self._checks.graph(service, caller)
            metrics = self._metrics.of_service(caller.service.service)
            waited_s = await self._admit(incoming, caller, graph)
            with (
                self._in_flight.slot(caller),
                self._connections.busy(incoming.connection),
                metrics.track_in_flight(),
            ):
                body, fields = await self._body(incoming, caller, graph)
                outcome = CANCELLED
                with await self._turn(request, caller, body, waited_s) as turn:
                    if turn.reply is not None:
                        outcome = _OK
                        return turn.reply.for_aiohttp()
                    waited_s += turn.waited_s
                    run = self._checks.run(request.headers, caller, body, waited_s)
                    record = self._begin(run, caller, request.path)
                    with cancellable(record):
                        response, outcome = await self._answered(
                            request, graph, run, fields, record, turn
                        )
                    return response
        except OpenAiError as error:
            failure, outcome = error, outcome_of(error, had_begun=record is not None)
            if outcome not in UNREFUSED:
                self._metrics.refused.labels(error.code or "invalid").inc()
            headers = () if record is None else record.headers
            return refusal_of(error, headers).for_aiohttp()
        finally:
            if metrics is not None:
                metrics.count(outcome, time.monotonic() - began_s)
            if record is not None:
                self._requests.end(record, outcome, failure)

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

    async def _body(
        self, request: AiohttpRequest, caller: Caller, graph: LoadedGraph
    ) -> tuple[bytes, Mapping[str, Any]]:
        body = await request.read(self._checks.limit_bytes(caller), self._limits.body_s)
        fields = self._checks.fields(body, caller, graph)
        await self._services.requests.check(caller.service.service, fields, len(body))
        return body, fields

    async def _answered(
        self,
        request: web.Request,
        graph: LoadedGraph,
        run: RunStages,
        fields: Mapping[str, Any],
        record: RequestRecord,
        turn: Turn,
    ) -> tuple[web.StreamResponse, str]:
        events: asyncio.Queue[Event] = asyncio.Queue()
        keys = graph.keys_of(fields)
        pending = self._staged.begin(record.service, graph, run, events.put_nowait, keys)
        answering = _Answering(request, self._staged, pending, events, fields, record, turn)
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
            record.release = pending.release
            self._staged.end(pending)


class _Answering:
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
    ) -> None:
        self._request = request
        self._staged = staged
        self._pending = pending
        self._events = events
        self._fields = fields
        self._record = record
        self._turn = turn
        self._streamed = StreamedText(pending.graph.streamed)

    async def whole(self) -> web.Response:
        """Returns the reply as JSON.

        Raises:
            OpenAiError: there is none.
        """
        reply = await self._next()
        while isinstance(reply, Piece):
            reply = await self._next()
        self._record.release = self._pending.release
        body = msgspec.json.encode(reply)
        response = WholeResponse(body, headers=self._record.headers)
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
                "Content-Type": _EVENTS,
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
            await response.write(event("error", error.body()))
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            return response, _SLOW
        except ConnectionError:
            return response, CANCELLED
        await response.write_eof()
        return response, outcome

    async def _pass_on(
        self, reply: Piece | dict[str, Any], response: web.StreamResponse, slow_client_s: float
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
                    events = self._streamed.events(reply.data)
                    self._turn.record(events)
                    await response.write(events)
                self._staged.add_credit(self._pending, len(reply.data))
                reply = await self._next()
        self._record.settle()
        last = event("reply", reply)
        self._turn.record(last)
        whole = WholeResponse(b"", headers=self._record.headers, content_type=_EVENTS)
        self._turn.answer(whole, is_complete=True)
        await response.write(last)

    async def _next(self) -> Piece | dict[str, Any]:
        """Returns the next piece, or the reply.

        Raises:
            OpenAiError: the request has failed.
        """
        found = await self._events.get()
        if isinstance(found, Piece):
            return found
        if isinstance(found, StageFailed):
            raise error_of(found)
        try:
            return reply_of(self._pending.graph, self._fields, found.values, self._streamed)
        except FlowMeshError as error:
            raise reply_impossible(error) from error
