"""The router's sockets: HTTP for clients, a Unix socket for the hubs of workers."""

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

from aiohttp import web

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import ENDPOINTS
from flowmesh_serving.calls.calls import Calls
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.errors import internal_error, response_of
from flowmesh_serving.http.invoke import InvokeEndpoint
from flowmesh_serving.http.limits import InFlightLimits
from flowmesh_serving.http.openai import HttpLimits, OpenAiEndpoints
from flowmesh_serving.links.hub_link import HubLink
from flowmesh_serving.metrics import RouterMetrics
from flowmesh_serving.router.settings import RouterSettings
from flowmesh_serving.service_table import ServiceTable
from flowmesh_serving.stages.hub_frames import HubFrames
from flowmesh_serving.stages.service_admission import ServiceAdmission
from flowmesh_serving.stages.staged_requests import StagedRequests

_REFRESH_EVERY_S = 0.5
_END_WITHIN_S = 5.0
_log = logging.getLogger(__name__)


class RouterServer:
    """One router.

    Attributes:
        url: where clients reach it, once it has started.
    """

    def __init__(self, settings: RouterSettings) -> None:
        """Reads the services.

        Raises:
            FlowMeshError: their list cannot be read.
        """
        self.url = ""
        self._settings = settings
        self._services = ServiceTable(settings.services)
        replicas = ReplicaTable()
        self._calls = Calls(replicas)
        self._staged = StagedRequests(replicas)
        self._metrics = RouterMetrics()
        self._listener = HubFrames(replicas, self._calls, self._staged, self._metrics)
        in_flight = InFlightLimits(settings.in_flight_max)
        limits = HttpLimits(settings.body_bytes_max, settings.slow_client_s)
        self._endpoints = OpenAiEndpoints(
            self._services, self._calls, in_flight, limits, self._metrics
        )
        self._invoke = InvokeEndpoint(
            self._services,
            self._staged,
            ServiceAdmission(replicas, in_flight.of),
            in_flight,
            limits,
            self._metrics,
        )
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Listens.

        Raises:
            OSError: a socket cannot be opened.
        """
        await self._listen_for_hubs(self._settings.hubs)
        runner = web.AppRunner(
            self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=_END_WITHIN_S
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, self._settings.host, self._settings.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        refreshing = asyncio.get_running_loop().create_task(self._refresh())
        self._stack.callback(refreshing.cancel)

    async def stop(self) -> None:
        """Closes all sockets; requests that have not ended soon are cancelled."""
        await self._stack.aclose()

    async def _listen_for_hubs(self, path: Path) -> None:
        listener = _private_socket(path)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: HubLink(self._listener), sock=listener)
        self._stack.callback(lambda: path.unlink(missing_ok=True))
        self._stack.callback(server.close)

    def _app(self) -> web.Application:
        app = web.Application(
            client_max_size=self._settings.body_bytes_max, middlewares=[_errors_as_json]
        )
        for path in ENDPOINTS:
            app.router.add_post(path, self._endpoints.answer)
        app.router.add_post("/v1/services/{namespace}/{name}:invoke", self._invoke.answer)
        app.router.add_get("/v1/models", self._endpoints.models)
        app.router.add_get("/v1/models/{model:.+}", self._endpoints.model)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._show_metrics)
        return app

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _show_metrics(self, _: web.Request) -> web.Response:
        self._metrics.count_dropped(self._staged.take_dropped())
        return web.Response(body=self._metrics.text(), content_type="text/plain")

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_EVERY_S)
            try:
                self._services.refresh()
            except FlowMeshError as error:
                _log.warning("%s", error)


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
    except Exception:
        _log.exception("a request failed")
        return response_of(internal_error())
