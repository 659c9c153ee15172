"""The router's sockets: HTTP for clients; for hubs a Unix socket, or a port with TLS."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from pathlib import Path

from aiohttp import web

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import ENDPOINTS
from flowmesh_core.protocol.router_services import RouterServices
from flowmesh_serving.call_spans import CallSpans
from flowmesh_serving.callers.caller_reviews import CallerReviews
from flowmesh_serving.calls.calls import Calls
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.control_client import ControlClient
from flowmesh_serving.errors import internal_error, response_of
from flowmesh_serving.http.connections import ConnectionLimits, Connections, RouterRunner
from flowmesh_serving.http.idempotent_replies import IdempotentReplies
from flowmesh_serving.http.in_flight import InFlightRequests
from flowmesh_serving.http.invoke import InvokeEndpoint
from flowmesh_serving.http.invoke_checks import InvokeChecks
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.openai import HttpLimits, OpenAiEndpoints
from flowmesh_serving.http.request_status import RequestStatusEndpoint
from flowmesh_serving.http.whole_calls import WholeCalls
from flowmesh_serving.http.whole_invocations import WholeInvocations
from flowmesh_serving.links.hub_link import HubLink, RecentLinks, RefusedHubs
from flowmesh_serving.links.link_verifier import LinkVerifier
from flowmesh_serving.list_order import ListOrder
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.router.reports import ReportFile, ReportSink, RouterReports
from flowmesh_serving.router.settings import RouterSettings
from flowmesh_serving.router.tls_files import TlsFiles
from flowmesh_serving.service_file import ServiceFile
from flowmesh_serving.service_table import ServiceTable
from flowmesh_serving.stages.hub_frames import HubFrames
from flowmesh_serving.stages.service_admission import ServiceAdmission
from flowmesh_serving.stages.stage_questions import StageQuestions
from flowmesh_serving.stages.stage_traces import StageTraces
from flowmesh_serving.stages.staged_requests import StagedRequests

_REFRESH_EVERY_S = 0.5
_ASK_EVERY_S = 1.0
_HANDSHAKE_WITHIN_S = 10.0
_UNAVAILABLE = 503
_log = logging.getLogger(__name__)


class RouterServer:
    """One router.

    Attributes:
        url: where clients reach it, once it has started.
        hubs_port: where hubs reach it with TLS, once it has started; 0 for not at all.
        probe_url: where probes and Prometheus reach it, once it has started.
    """

    def __init__(self, settings: RouterSettings, spans: CallSpans | None = None) -> None:
        """Reads the certificate and the services.

        Args:
            settings: of this router.
            spans: of calls; None where they are not traced.

        Raises:
            FlowMeshError: they cannot be read.
        """
        self.url = self.probe_url = ""
        self.hubs_port = 0
        self._settings = settings
        self._control = _control_client(settings)
        self._services = ServiceTable(takes_users=self._control is not None)
        self._order = ListOrder()
        self._replicas = ReplicaTable(self._services.is_placed)
        self._calls = Calls(self._replicas, settings.replica_wait_s)
        questions = StageQuestions()
        timed = settings.stage_times or spans is not None
        self._staged = StagedRequests(
            self._replicas, StageTraces(spans, questions) if timed else None
        )
        self._requests, self._replies = RequestTable(), IdempotentReplies()
        self._tls = _tls_files(settings)
        self._verifier = LinkVerifier(
            settings.group, None if self._tls is None else self._tls.hub_context
        )
        self._refused_hubs = RefusedHubs()
        self._recent_links = RecentLinks()
        self._metrics = RouterMetrics((self._calls.route_times, self._staged.route_times))
        self._file = None if settings.services is None else ServiceFile(settings.services)
        self._read_file()
        self._listener = HubFrames(
            self._replicas, self._calls, self._staged, questions, self._metrics
        )
        self._connections = Connections(
            ConnectionLimits(settings.connections_max, settings.header_s, settings.slow_client_s)
        )
        in_flight = InFlightRequests(settings.in_flight_max, self._services, self._replicas)
        limits = HttpLimits(settings.body_bytes_max, settings.body_s, settings.slow_client_s)
        users = KubernetesCallers(
            None if self._control is None else CallerReviews(self._control),
            self._services,
            body_bytes=limits.body_bytes,
            body_s=limits.body_s,
        )
        admission = ServiceAdmission(self._replicas, in_flight.of)
        checks = InvokeChecks(self._services, admission, limits, timed=timed)
        self._invoke = InvokeEndpoint(
            self._services,
            self._staged,
            checks,
            self._calls.arrivals,
            in_flight,
            self._connections,
            limits,
            self._metrics,
            users,
            self._requests,
            self._replies,
        )
        self._endpoints = OpenAiEndpoints(
            self._services,
            self._calls,
            in_flight,
            self._connections,
            limits,
            self._metrics,
            users,
            self._invoke,
            self._requests,
            self._replies,
            spans,
        )
        invocations = WholeInvocations(
            self._services,
            self._staged,
            checks,
            in_flight,
            self._connections,
            self._metrics,
            self._requests,
        )
        self._status = RequestStatusEndpoint(
            self._services, users, self._requests, self._calls, self._staged, questions
        )
        self._wholes = (invocations, WholeCalls(self._endpoints))
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: a socket cannot be opened.
        """
        settings, tls = self._settings, self._tls
        if tls is not None:
            following = asyncio.get_running_loop().create_task(tls.follow())
            self._stack.callback(following.cancel)
        context = None if tls is None else tls.context
        if settings.hubs is not None:
            await self._listen_on_socket(settings.hubs)
        if settings.hubs_port is not None and tls is not None:
            await self._listen_on_port(settings.hubs_port, tls.hub_context)
        apart = settings.probe_port is not None
        self.url = await self._serve(self._app(with_probes=not apart), settings.port, context)
        self.probe_url = self.url
        if settings.probe_port is not None:
            self.probe_url = await self._serve(self._probes(), settings.probe_port, None)
        refreshing = asyncio.get_running_loop().create_task(self._refresh())
        self._stack.callback(refreshing.cancel)
        if (sink := self._sink()) is not None:
            reports = RouterReports(self._metrics, self._replicas, sink)
            reporting = asyncio.get_running_loop().create_task(reports.run())
            self._stack.callback(reporting.cancel)

    def _sink(self) -> ReportSink | None:
        reports = self._settings.reports
        return self._control if reports is None else ReportFile(reports)

    async def stop(self) -> None:
        """Closes all sockets; requests that have not ended soon are cancelled."""
        await self._stack.aclose()
        self._replies.close()

    async def _serve(self, app: web.Application, port: int, context: ssl.SSLContext | None) -> str:
        runner = RouterRunner(
            app,
            self._connections,
            self._wholes,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=self._settings.end_within_s,
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, self._settings.host, port, ssl_context=context).start()
        host, bound = runner.addresses[0][:2]
        return f"{'http' if context is None else 'https'}://{host}:{bound}"

    async def _listen_on_port(self, port: int, context: ssl.SSLContext) -> None:
        server = await asyncio.get_running_loop().create_server(
            self._hub_link_by_tls,
            self._settings.host,
            port,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_WITHIN_S,
        )
        self.hubs_port = server.sockets[0].getsockname()[1]
        self._stack.callback(server.close)

    def _hub_link_by_tls(self) -> HubLink:
        return HubLink(self._listener, self._refused_hubs, self._verifier, self._recent_links)

    async def _listen_on_socket(self, path: Path) -> None:
        listener = _private_socket(path)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(
            lambda: HubLink(self._listener, self._refused_hubs), sock=listener
        )
        self._stack.callback(lambda: path.unlink(missing_ok=True))
        self._stack.callback(server.close)

    def _app(self, *, with_probes: bool) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.body_bytes_max, middlewares=[_errors_as_json]
        )
        for path in ENDPOINTS:
            app.router.add_post(path, self._endpoints.answer)
        app.router.add_post("/v1/services/{namespace}/{name}:invoke", self._invoke.answer)
        requests = "/v1/services/{namespace}/{name}/requests"
        app.router.add_get(requests, self._status.show_all)
        app.router.add_get(f"{requests}/{{id}}", self._status.show)
        app.router.add_delete(f"{requests}/{{id}}", self._status.cancel)
        app.router.add_get("/v1/models", self._endpoints.models)
        app.router.add_get("/v1/models/{model:.+}", self._endpoints.model)
        if with_probes:
            self._add_probes(app)
        return app

    def _probes(self) -> web.Application:
        app = web.Application(middlewares=[_errors_as_json])
        self._add_probes(app)
        return app

    def _add_probes(self, app: web.Application) -> None:
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._show_metrics)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        """Says whether it knows its services, so that it may get requests."""
        if self._services.is_known:
            return web.json_response({"status": "ok"})
        return web.json_response({"status": "the services are not known yet"}, status=_UNAVAILABLE)

    async def _show_metrics(self, _: web.Request) -> web.Response:
        counts = {name: self._replicas.count(name) for name in self._services.names}
        self._metrics.count_dropped(self._staged.take_dropped())
        text = self._metrics.text(counts, self._replicas.batch_caps())
        return web.Response(body=text, content_type="text/plain")

    async def _refresh(self) -> None:
        if self._control is not None:
            await self._follow(self._control)
        while True:
            await asyncio.sleep(_REFRESH_EVERY_S)
            try:
                self._read_file()
            except FlowMeshError as error:
                _log.warning("%s", error)

    def _read_file(self) -> None:
        listed = self._file.read() if self._file is not None else None
        if listed is not None:
            self._use(listed)

    def _use(self, listed: RouterServices) -> None:
        if not self._order.accepts(listed):
            self._metrics.outdated_lists.inc()
            return
        self._verifier.use(listed.link_authorities, listed.denied_workers)
        self._services.use(listed)
        self._requests.keep(self._services.names)
        self._replies.keep(self._services.names)
        self._metrics.use({entry.service: entry for entry in listed.services})
        if self._replicas.placement_changed():
            self._calls.arrivals.happened()

    async def _follow(self, control: ControlClient) -> None:
        """Reads the services from the control plane until it is cancelled."""
        while True:
            try:
                listed = await control.read()
                if listed is not None:
                    self._use(listed)
            except (FlowMeshError, ValueError) as error:  # what was read before holds
                _log.warning("%s", error)
            await asyncio.sleep(_ASK_EVERY_S)


def _tls_files(settings: RouterSettings) -> TlsFiles | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return TlsFiles(settings.tls_cert, settings.tls_key)


def _control_client(settings: RouterSettings) -> ControlClient | None:
    """Returns the client of the control plane that lists the services; None where a file does."""
    if settings.services is not None or settings.token is None:
        return None
    return ControlClient(settings.control, settings.token, settings.control_ca)


def _private_socket(path: Path) -> socket.socket:
    """Returns a Unix socket that only this user may connect to; an old one is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


@web.middleware
async def _errors_as_json(request: web.Request, handler: object) -> web.StreamResponse:
    """Turns all errors into OpenAI's shape."""
    try:
        return await handler(request)  # type: ignore[operator,no-any-return]
    except web.HTTPException as error:
        reason = f"{error.reason}: {request.method} {request.path[:80]}"
        return response_of(OpenAiError(reason, code="unknown_url", status=error.status))
    except ConnectionError:
        raise  # the client is gone
    except Exception:
        _log.exception("a request failed")
        return response_of(internal_error())
