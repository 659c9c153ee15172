"""``POST /v1/services/{namespace}/{name}:invoke``: requests to services with stages."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    DEADLINE,
    Piece,
    RunStages,
    StageFailed,
)
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.calls.calls import new_call_id
from flowmesh_serving.calls.replica_arrivals import ReplicaArrivals
from flowmesh_serving.errors import (
    CODES_OF_FAILURES,
    NO_REPLICA,
    body_too_large,
    body_too_slow,
    deadline_exceeded,
    internal_error,
    lost_replica,
    missing_field,
    replicas_full,
    response_of,
    unknown_service,
)
from flowmesh_serving.http.connections import Connections
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.openai import HttpLimits
from flowmesh_serving.http.request_body import whole_body
from flowmesh_serving.http.request_headers import caller_of, seed, timeout_s
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.service_admission import ServiceAdmission
from flowmesh_serving.stages.stage_events import StreamedText, event, reply_of
from flowmesh_serving.stages.staged_requests import UNROUTED, PendingRequest, StagedRequests

_EVENTS = "text/event-stream"
_REQUEST_ID = "X-Flowmesh-Request"
_OK, _CANCELLED, _FAILED, _REFUSED = "ok", "cancelled", "failed", "refused"
_SLOW = "client-slow"
_HUB_GRACE_S = 1.0
_MS = 1000
_bodies = msgspec.json.Decoder(dict)


class InvokeEndpoint:
    """The handler of ``:invoke``."""

    def __init__(
        self,
        services: ServiceTable,
        staged: StagedRequests,
        admission: ServiceAdmission,
        arrivals: ReplicaArrivals,
        in_flight: InFlightRequests,
        connections: Connections,
        limits: HttpLimits,
        metrics: RouterMetrics,
        users: KubernetesCallers,
    ) -> None:
        self._services = services
        self._users = users
        self._staged = staged
        self._admission = admission
        self._arrivals = arrivals
        self._in_flight = in_flight
        self._connections = connections
        self._limits = limits
        self._metrics = metrics

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a request."""
        began_s = time.monotonic()
        metrics = None
        outcome = _REFUSED
        try:
            service = f"{request.match_info['namespace']}/{request.match_info['name']}"
            caller = caller_of(request, self._services)
            if caller is None:
                caller = await self._users.of_service(request, service)
            graph = self._graph(service, caller)
            metrics = self._metrics.of_service(caller.service.service)
            waited_s = await self._admit(request, caller, graph)
            with (
                self._in_flight.slot(caller),
                self._connections.busy(request),
                metrics.track_in_flight(),
            ):
                body, fields = await self._body(request, caller, graph)
                outcome = _CANCELLED
                run = self._run(request, caller, body, waited_s)
                response, outcome = await self._answered(request, caller, graph, run, fields)
                return response
        except OpenAiError as error:
            failed = error.code in CODES_OF_FAILURES or outcome == _CANCELLED
            outcome = _FAILED if failed else _REFUSED
            if outcome == _REFUSED:
                self._metrics.refused.labels(error.code or "invalid").inc()
            return response_of(error)
        finally:
            if metrics is not None:
                metrics.count(outcome, time.monotonic() - began_s)

    async def _admit(self, request: web.Request, caller: Caller, graph: LoadedGraph) -> float:
        """Admits a request, once each component has a replica; returns how long it waited."""
        budget_s = self._budget_s(request, caller)
        loop = asyncio.get_running_loop()
        began_s = now_s = loop.time()
        while True:
            try:
                self._admission.check(caller, graph, budget_s - (now_s - began_s))
            except OpenAiError as error:
                if error.code != NO_REPLICA:
                    raise
                until_s = began_s + min(self._arrivals.within_s, budget_s)
                with self._in_flight.slot(caller), self._connections.busy(request):
                    if not await self._arrivals.one_before(until_s):
                        raise
                now_s = loop.time()
            else:
                return now_s - began_s

    def _graph(self, service: str, caller: Caller) -> LoadedGraph:
        graph = self._services.graph(service)
        if graph is None or caller.service.service != service:
            raise unknown_service(service)
        return graph

    async def _body(
        self, request: web.Request, caller: Caller, graph: LoadedGraph
    ) -> tuple[bytes, Mapping[str, Any]]:
        limit = min(self._limits.body_bytes, caller.service.request_bytes_max)
        if request.content_length is not None and request.content_length > limit:
            raise body_too_large(limit)
        try:
            body = await whole_body(request, self._limits.body_s)
            fields = decode(_bodies, body)
        except TimeoutError:
            raise body_too_slow(self._limits.body_s) from None
        except web.HTTPRequestEntityTooLarge:
            raise body_too_large(limit) from None
        except msgspec.DecodeError as error:
            text = f"The request's body is not a JSON object: {error}"
            raise OpenAiError(text, code="invalid_json") from None
        if len(body) > limit:
            raise body_too_large(limit)
        for name in graph.request_fields:
            if name not in fields:
                raise missing_field(name)
        await self._services.requests.check(caller.service.service, fields, len(body))
        return body, fields

    @staticmethod
    def _budget_s(request: web.Request, caller: Caller) -> float:
        within_s = timeout_s(request, caller.service.timeout_s)
        return min(within_s, caller.service.slo_s) if caller.service.slo_s else within_s

    @staticmethod
    def _run(request: web.Request, caller: Caller, body: bytes, waited_s: float) -> RunStages:
        return RunStages(
            request_id=new_call_id(),
            graph="",
            route=UNROUTED,
            request=body,
            budget_ms=max(0, int((timeout_s(request, caller.service.timeout_s) - waited_s) * _MS)),
            slo_ms=int(caller.service.slo_s * _MS),
            tenant=caller.namespace,
            seed=seed(request, caller),
            stream=_EVENTS in request.headers.get("Accept", ""),
        )

    async def _answered(
        self,
        request: web.Request,
        caller: Caller,
        graph: LoadedGraph,
        run: RunStages,
        fields: Mapping[str, Any],
    ) -> tuple[web.StreamResponse, str]:
        pending = self._staged.begin(caller.service.service, graph, run)
        answering = _Answering(request, self._staged, pending, fields)
        late = StageFailed(run.request_id, run.route.version, "", "", DEADLINE)
        timer = asyncio.get_running_loop().call_later(
            run.budget_ms / _MS + _HUB_GRACE_S, pending.events.put_nowait, late
        )
        try:
            if run.stream:
                return await answering.stream(self._limits.slow_client_s)
            return await answering.whole(), _OK
        finally:
            timer.cancel()
            self._staged.end(pending)


class _Answering:
    """The answer of one request."""

    def __init__(
        self,
        request: web.Request,
        staged: StagedRequests,
        pending: PendingRequest,
        fields: Mapping[str, Any],
    ) -> None:
        self._request = request
        self._staged = staged
        self._pending = pending
        self._fields = fields
        self._streamed = StreamedText(pending.graph.streamed)

    async def whole(self) -> web.Response:
        """Returns the reply as JSON.

        Raises:
            OpenAiError: there is none.
        """
        reply = await self._next()
        while isinstance(reply, Piece):
            reply = await self._next()
        return web.Response(
            body=msgspec.json.encode(reply),
            content_type="application/json",
            headers={_REQUEST_ID: self._pending.request_id},
        )

    async def stream(self, slow_client_s: float) -> tuple[web.StreamResponse, str]:
        """Returns the answer of the last stage as it is made, then the reply; and the outcome.

        Raises:
            OpenAiError: no byte of an answer has been sent.
        """
        reply = await self._next()
        response = web.StreamResponse(
            headers={
                "Content-Type": f"{_EVENTS}; charset=utf-8",
                "Cache-Control": "no-cache",
                _REQUEST_ID: self._pending.request_id,
            }
        )
        await response.prepare(self._request)
        outcome = _OK
        try:
            while isinstance(reply, Piece):
                async with asyncio.timeout(slow_client_s):
                    await response.write(self._streamed.events(reply.data))
                self._staged.add_credit(self._pending, len(reply.data))
                reply = await self._next()
            await response.write(event("reply", reply))
        except OpenAiError as error:
            outcome = _FAILED
            await response.write(event("error", error.body()))
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            return response, _SLOW
        except ConnectionError:
            return response, _CANCELLED
        await response.write_eof()
        return response, outcome

    async def _next(self) -> Piece | dict[str, Any]:
        """Returns the next piece, or the reply.

        Raises:
            OpenAiError: the request has failed.
        """
        found = await self._pending.events.get()
        if isinstance(found, Piece):
            return found
        if isinstance(found, StageFailed):
            raise _error_of(found)
        try:
            return reply_of(self._pending.graph, self._fields, found.values, self._streamed)
        except FlowMeshError as error:
            raise OpenAiError(
                f"The reply cannot be made: {error}", type="server_error", code="reply", status=500
            ) from error


class _EngineErrorBody(msgspec.Struct):
    message: str = ""
    type: str = "server_error"
    param: str | None = None
    code: str | int | None = None


class _EngineError(msgspec.Struct):
    error: _EngineErrorBody


_errors = msgspec.json.Decoder(_EngineError)


def _error_of(failed: StageFailed) -> OpenAiError:
    match failed.outcome:
        case "deadline":
            return deadline_exceeded()
        case "full":
            return replicas_full()
        case "failed" if failed.body:
            try:
                found = decode(_errors, failed.body).error
            except msgspec.DecodeError:
                return internal_error()
            where = f" (stage {failed.stage})" if failed.stage else ""
            code = None if found.code is None else str(found.code)
            return OpenAiError(
                f"{found.message}{where}",
                param=found.param,
                code=code,
                status=failed.status,
                type=found.type,
            )
        case "failed":
            return internal_error()
        case _:
            return lost_replica()
