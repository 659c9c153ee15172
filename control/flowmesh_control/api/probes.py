"""HTTP handlers for machines: the liveness probe and the metrics."""

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.fabric import Health
from flowmesh_control.api.authorization import AuthorizedRequest, Route, fabric_route
from flowmesh_control.api.ports import Epoch
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.metrics.exposition import MetricsPage


class ProbeHandlers:
    """Handlers of ``/healthz`` and ``/metrics``; with ``metrics_open`` neither needs a token."""

    def __init__(self, *, epoch: Epoch, metrics: MetricsPage, metrics_open: bool) -> None:
        self._epoch = epoch
        self._metrics = metrics
        self._metrics_open = metrics_open

    def routes(self) -> list[Route]:
        """Returns the routes that need a token."""
        if self._metrics_open:
            return []
        return [
            fabric_route(
                operations.GET_METRICS, self._protected_metrics, Verb.GET, Resource.METRICS
            )
        ]

    def open_routes(self) -> list[web.RouteDef]:
        """Returns the routes that need no token."""
        found = [web.get(operations.GET_HEALTH.path, self.health)]
        if self._metrics_open:
            found.append(web.get(operations.GET_METRICS.path, self.metrics))
        return found

    async def health(self, _: web.Request) -> web.Response:
        """``GET /healthz`` → :class:`Health`; needs no token."""
        return json_response(Health(self._epoch.number))

    async def metrics(self, _: web.Request) -> web.Response:
        """``GET /metrics`` in the Prometheus text format."""
        text = await self._metrics.text()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _protected_metrics(self, call: AuthorizedRequest) -> web.Response:
        return await self.metrics(call.request)
