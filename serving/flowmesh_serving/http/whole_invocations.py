"""``:invoke`` for requests that came whole and want no stream: without a task for each.

What :mod:`flowmesh_serving.http.invoke` does in a coroutine is done here by two calls: one when the
request has come, one when its reply, or its failure, has.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp.http import RawRequestMessage

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import DEADLINE, Piece, StageFailed
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.errors import (
    CANCELLED,
    NO_REPLICA,
    UNREFUSED,
    internal_error,
    outcome_of,
    reply_impossible,
    request_cancelled,
)
from flowmesh_serving.http.connections import Connections
from flowmesh_serving.http.idempotent_replies import KEY_HEADER
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.invoke_checks import InvokeChecks
from flowmesh_serving.http.request_headers import caller_of
from flowmesh_serving.http.whole_requests import WholeRequest
from flowmesh_serving.http.whole_response import EVENTS, WholeResponse, refusal_of
from flowmesh_serving.metrics import RouterMetrics, ServiceMetrics
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.stage_events import reply_of
from flowmesh_serving.stages.stage_failures import error_of
from flowmesh_serving.stages.staged_requests import Event, PendingRequest, StagedRequests

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowmesh_serving.requests.request_record import RequestRecord

_OK, _REFUSED = "ok", "refused"
_HUB_GRACE_S = 1.0
_MS = 1000
_encoder = msgspec.json.Encoder()
_log = logging.getLogger(__name__)


class WholeInvocations:
    """The ``WholeRequestHandler`` of ``:invoke``."""

    def __init__(
        self,
        services: ServiceTable,
        staged: StagedRequests,
        checks: InvokeChecks,
        in_flight: InFlightRequests,
        connections: Connections,
        metrics: RouterMetrics,
        requests: RequestTable,
    ) -> None:
        self.services = services
        self.staged = staged
        self.checks = checks
        self.in_flight = in_flight
        self.connections = connections
        self.metrics = metrics
        self.requests = requests

    def takes(self, message: RawRequestMessage, size: int) -> bool:
        """See ``WholeRequestHandler.takes``."""
        service = self.services.invoked(message.path)
        return (
            service is not None
            and message.method == "POST"
            and EVENTS not in message.headers.get("Accept", "")
            and KEY_HEADER not in message.headers  # it may have to wait
            and self.services.requests.is_immediate(service, size)
        )

    def begin(self, request: WholeRequest) -> bool:
        """See ``WholeRequestHandler.begin``."""
        return _Invocation(self, request).begin()


class _Invocation:
    """One request."""

    __slots__ = (
        "_began_s",
        "_caller",
        "_fields",
        "_graph",
        "_metrics",
        "_outcome",
        "_pending",
        "_record",
        "_request",
        "_router",
        "_timer",
    )

    def __init__(self, router: WholeInvocations, request: WholeRequest) -> None:
        self._router = router
        self._request = request
        self._began_s = time.monotonic()
        self._outcome = _REFUSED
        self._metrics: ServiceMetrics | None = None
        self._caller: Caller | None = None
        self._pending: PendingRequest | None = None
        self._record: RequestRecord | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> bool:
        """Checks the request and sends it to hubs.

        Returns:
            False where it has to wait: for a review of its token, or for a replica.
        """
        router, headers = self._router, self._request.headers
        caller = caller_of(headers, router.services)
        if caller is None:
            return False
        try:
            service = router.services.invoked(self._request.path) or ""
            self._graph = router.checks.graph(service, caller)
            self._metrics = router.metrics.of_service(service)
            router.checks.admit(headers, caller, self._graph)
            router.in_flight.enter(caller)
            self._caller = caller
            self._metrics.enter()
            router.connections.begin(self._request.connection)
            self._send(caller, service, self._graph)
        except OpenAiError as error:
            if error.code == NO_REPLICA and self._caller is None:
                return False
            self._refuse(error)
        except Exception:
            _log.exception("a request failed")
            self._refuse(internal_error())
        return True

    def _send(self, caller: Caller, service: str, graph: LoadedGraph) -> None:
        router, body = self._router, self._request.body
        self._fields: Mapping[str, Any] = router.checks.fields(body, caller, graph)
        router.services.requests.check_now(service, self._fields, len(body))
        self._outcome = CANCELLED
        run = router.checks.run(self._request.headers, caller, body)
        path = self._request.path
        self._record = router.requests.begin(run.request_id, caller, path, self._cancel)
        keys = graph.keys_of(self._fields)
        self._pending = router.staged.begin(service, graph, run, self._receive, keys)
        self._request.on_gone = self._end
        within_s = run.budget_ms / _MS + _HUB_GRACE_S
        self._timer = asyncio.get_running_loop().call_later(within_s, self._late)

    def _cancel(self) -> None:
        self._refuse(request_cancelled())

    def _late(self) -> None:
        assert self._pending is not None
        version = self._pending.run.route.version
        self._receive(StageFailed(self._pending.request_id, version, "", "", DEADLINE))

    def _receive(self, event: Event) -> None:
        """Answers with the reply, or with what has failed."""
        if isinstance(event, Piece) or self._pending is None:
            return
        if isinstance(event, StageFailed):
            self._refuse(error_of(event))
            return
        try:
            body = _encoder.encode(reply_of(self._graph, self._fields, event.values, None))
        except FlowMeshError as error:
            self._refuse(reply_impossible(error))
            return
        except Exception:
            _log.exception("a request failed")
            self._refuse(internal_error())
            return
        self._outcome = _OK
        headers = self._end()
        self._request.answer(WholeResponse(body, headers=headers))

    def _refuse(self, error: OpenAiError) -> None:
        self._outcome = outcome_of(error, had_begun=self._outcome == CANCELLED)
        if self._outcome not in UNREFUSED:
            self._router.metrics.refused.labels(error.code or "invalid").inc()
        headers = self._end(error.code)
        self._request.answer(refusal_of(error, headers))

    def _end(self, code: str | None = None) -> tuple[tuple[str, str], ...]:
        """Frees what the request has, and counts it; returns what its response says of it."""
        self._request.on_gone = None  # else they keep each other, and the body
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, None
        if pending is not None:
            self._router.staged.end(pending)
        metrics = self._metrics
        if self._caller is not None:
            self._router.connections.end(self._request.connection)
            self._router.in_flight.leave(self._caller)
            assert metrics is not None
            metrics.leave()
        if metrics is not None:
            metrics.count(self._outcome, time.monotonic() - self._began_s)
        record = self._record
        if record is None:
            return ()
        if pending is not None:
            record.release = pending.release
            record.route = pending.run.route
        self._router.requests.end(record, self._outcome, code)
        if pending is not None and pending.trace is not None:
            took_s = time.monotonic() - self._began_s
            pending.trace.end(record, self._request.headers, took_s)
        return record.headers
