"""HTTP handlers of services: apply, show, explain, list and delete."""

import msgspec
from aiohttp import web

from flowmesh_api.v1.services import ServiceApplication, ServiceDeleted, ServiceList
from flowmesh_control.api.authorization import AuthorizedRequest, NamespaceSource, Route
from flowmesh_control.api.request_body import body_of, decode_body
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import NamespaceLabels, Resource, Verb
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_control.serving.replica_planner import ReplicaPlanner

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
            Route("POST", "/v1/services", self.apply, Verb.CREATE, services, body),
            Route("GET", "/v1/services", self.list, Verb.LIST, services, query),
            Route("GET", one, self.show, Verb.GET, services, query),
            Route("GET", f"{one}/why", self.why, Verb.GET, services, query),
            Route("DELETE", one, self.delete, Verb.DELETE, services, query),
        ]

    async def apply(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/services``: :class:`ServiceApplication` → its status."""
        application = decode_body(await body_of(call.request), _decoder)
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

    async def why(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services/{name}/why?namespace=`` → its replicas, each with its reason."""
        service = self._registry.get(call.namespace, call.request.match_info["name"])
        return json_response(self._planner.reasons(service))

    async def delete(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /v1/services/{name}?namespace=``."""
        name = call.request.match_info["name"]
        await self._registry.remove(call.namespace, name)
        call.note(name)
        return json_response(ServiceDeleted())
