"""What machines ask: whether it is alive, and its metrics."""

from aiohttp import web

from flowmesh_api.v1.fabric import Health
from flowmesh_control.api.authorization import AuthorizedRequest, Route, of_fabric
from flowmesh_control.api.responses import answer
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.wiring import Parts


class ProbeHandlers:
    """The handlers of ``/healthz`` and ``/metrics``."""

    def __init__(self, parts: Parts) -> None:
        """Takes the parts."""
        self._parts = parts

    def routes(self) -> list[Route]:
        """Those behind a door."""
        if self._parts.given.settings.metrics_open:
            return []
        return [of_fabric("GET", "/metrics", self._guarded, Verb.GET, Resource.METRICS)]

    def open_routes(self) -> list[web.RouteDef]:
        """Those without one."""
        found = [web.get("/healthz", self.health)]
        if self._parts.given.settings.metrics_open:
            found.append(web.get("/metrics", self.metrics))
        return found

    async def health(self, _: web.Request) -> web.Response:
        """``GET /healthz`` → :class:`Health`; needs no token."""
        return answer(Health(self._parts.given.epoch))

    async def metrics(self, _: web.Request) -> web.Response:
        """``GET /metrics`` in the Prometheus text format."""
        text = await self._parts.metrics.text()
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _guarded(self, visit: AuthorizedRequest) -> web.Response:
        return await self.metrics(visit.request)
