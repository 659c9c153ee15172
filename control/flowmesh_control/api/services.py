"""HTTP handlers of services: apply, show, list and delete."""

import msgspec
from aiohttp import web

from flowmesh_api.v1.services import ServiceApplication, ServiceDeleted, ServiceList
from flowmesh_control.api.authorization import (
    AuthorizedRequest,
    NamespaceSource,
    Route,
    limited,
)
from flowmesh_control.api.request_body import body_of, decode_body
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import NamespaceLabels, Resource, Verb
from flowmesh_control.quotas.rates import RequestRate
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_control.serving.replica_planner import ReplicaPlanner
from flowmesh_core.errors import FlowMeshError

COMMAS_MAX = 1000
"""In the document of a service: it is checked on the event loop, each of its problems in 0.2 ms."""
_decoder = msgspec.json.Decoder(ServiceApplication)


class ServiceHandlers:
    """Handlers of ``/v1/services``."""

    def __init__(
        self, *, registry: ServiceRegistry, planner: ReplicaPlanner, labels: NamespaceLabels
    ) -> None:
        self._registry = registry
        self._planner = planner
        self._labels = labels

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        services, body, query = Resource.SERVICES, NamespaceSource.BODY, NamespaceSource.QUERY
        one = "/v1/services/{name}"
        return [
            limited(
                Route("POST", "/v1/services", self.apply, Verb.CREATE, services, body),
                rate=RequestRate.SUBMISSIONS,
            ),
            Route("GET", "/v1/services", self.list, Verb.LIST, services, query),
            Route("GET", one, self.show, Verb.GET, services, query),
            Route("DELETE", one, self.delete, Verb.DELETE, services, query),
        ]

    async def apply(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/services``: :class:`ServiceApplication` → its status."""
        body = await body_of(call.request)
        if body.count(b",") > COMMAS_MAX:
            raise FlowMeshError(
                f"a service's document has at most {COMMAS_MAX} commas",
                where="body",
                remedy="leave out what is no field of a FlowMeshService",
            )
        application = decode_body(body, _decoder)
        application = msgspec.structs.replace(application, namespace=call.namespace)
        service = await self._registry.apply(application, self._labels(call.namespace))
        call.note(service.name)
        return json_response(self._planner.status(service))

    async def list(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services?namespace=`` → :class:`ServiceList`."""
        found = [s for s in self._registry.all() if s.namespace == call.namespace]
        statuses = tuple(self._planner.status(s) for s in sorted(found, key=lambda s: s.name))
        return json_response(ServiceList(statuses))

    async def show(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services/{name}?namespace=`` → its status."""
        service = self._registry.get(call.namespace, call.request.match_info["name"])
        return json_response(self._planner.status(service))

    async def delete(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /v1/services/{name}?namespace=``."""
        name = call.request.match_info["name"]
        await self._registry.remove(call.namespace, name)
        call.note(name)
        return json_response(ServiceDeleted())
