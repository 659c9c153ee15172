"""HTTP handlers of services and their tokens, and of what routers read and report."""

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.services import (
    RouterReportTaken,
    ServiceApplication,
    ServiceDeleted,
    ServiceList,
    ServiceTokenList,
    ServiceTokenRequest,
    ServiceTokenRevoked,
)
from flowmesh_control.api.authorization import (
    AuthorizedRequest,
    NamespaceSource,
    Route,
    fabric_route,
    limited,
)
from flowmesh_control.api.request_body import body_of, decode_body, read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import flag, json_response
from flowmesh_control.auth.users import NamespaceLabels, Resource, Verb
from flowmesh_control.errors import ConflictError, ForbiddenError
from flowmesh_control.quotas.rates import RequestRate
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_control.serving.replica_planner import ReplicaPlanner
from flowmesh_control.serving.service_tokens import ServiceTokens
from flowmesh_core.errors import FlowMeshError, SpecError
from flowmesh_core.protocol.router_reports import REPORT_BYTES_MAX, RouterReport

COMMAS_MAX = 1000
"""In the document of a service: it is checked on the event loop, each of its problems in 0.2 ms."""
_decoder = msgspec.json.Decoder(ServiceApplication)
_report_decoder = msgspec.json.Decoder(RouterReport)
_token_decoder = msgspec.json.Decoder(ServiceTokenRequest)
TOKEN_VALID_S_MAX = 10 * 366 * 86400.0


class ServiceHandlers:
    """Handlers of ``/v1/services``."""

    def __init__(
        self,
        *,
        registry: ServiceRegistry,
        planner: ReplicaPlanner,
        tokens: ServiceTokens,
        labels: NamespaceLabels,
        objects: bool,
        router_url: str,
    ) -> None:
        """Keeps what the handlers need.

        Args:
            registry: the services.
            planner: shows their status.
            tokens: of their callers.
            labels: of namespaces.
            objects: whether services are objects of the cluster; the API then changes none.
            router_url: where callers use their tokens; empty for nowhere.
        """
        self._registry = registry
        self._planner = planner
        self._tokens = tokens
        self._labels = labels
        self._objects = objects
        self._router_url = router_url

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        services, body, query = Resource.SERVICES, NamespaceSource.BODY, NamespaceSource.QUERY
        return [
            limited(
                Route(operations.APPLY_SERVICE, self.apply, Verb.CREATE, services, body),
                rate=RequestRate.SUBMISSIONS,
            ),
            Route(operations.LIST_SERVICES, self.list, Verb.LIST, services, query),
            Route(operations.GET_SERVICE, self.show, Verb.GET, services, query),
            Route(operations.GET_SERVICE_WHY, self.why, Verb.GET, services, query),
            Route(operations.GET_SERVICE_CAPACITY, self.capacity, Verb.GET, services, query),
            Route(operations.DELETE_SERVICE, self.delete, Verb.DELETE, services, query),
            Route(operations.CREATE_SERVICE_TOKEN, self.create_token, Verb.UPDATE, services, query),
            Route(operations.LIST_SERVICE_TOKENS, self.tokens, Verb.GET, services, query),
            Route(operations.REVOKE_SERVICE_TOKEN, self.revoke_token, Verb.UPDATE, services, query),
            fabric_route(
                operations.LIST_ROUTER_SERVICES, self.for_routers, Verb.GET, Resource.ROUTER
            ),
            fabric_route(
                operations.REPORT_REQUESTS,
                self.report,
                Verb.POST,
                Resource.ROUTER,
                logging=Logging.COUNTED,  # each router sends one every few seconds
            ),
        ]

    async def apply(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/services``: :class:`ServiceApplication` → its status."""
        self._check_changeable()
        body = await body_of(call.request)
        if body.count(b",") > COMMAS_MAX:
            raise FlowMeshError(
                f"a service's document has at most {COMMAS_MAX} commas",
                where="body",
                remedy="remove what is not a field of a FlowMeshService",
            )
        application = decode_body(body, _decoder)
        application = msgspec.structs.replace(application, namespace=call.namespace)
        namespace = call.namespace
        # Asked before: a service of that name may come to exist until it is applied.
        may = await call.users.may(call.user, Verb.UPDATE, Resource.SERVICES, namespace)
        labels = self._labels(namespace)
        service = await self._registry.apply(application, labels, may_change=may)
        call.note(service.name)
        return json_response(self._planner.status(service))

    async def list(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services?namespace=`` → :class:`ServiceList`.

        With ``?all_namespaces=1`` who may list services in all namespaces gets all.
        """
        found = self._registry.all()
        if not flag(call.request, "all_namespaces"):
            found = [s for s in found if s.namespace == call.namespace]
        elif not await call.users.may(call.user, Verb.LIST, Resource.SERVICES, ""):
            raise _not_in_all(call)
        found.sort(key=lambda s: (s.name, s.namespace))
        return json_response(ServiceList(tuple(self._planner.status(s) for s in found)))

    async def show(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services/{name}?namespace=`` → its status."""
        service = self._registry.get(call.namespace, call.request.match_info["name"])
        return json_response(self._planner.status(service))

    async def why(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services/{name}/why?namespace=`` → its replicas, each with its reason."""
        service = self._registry.get(call.namespace, call.request.match_info["name"])
        return json_response(self._planner.reasons(service))

    async def capacity(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services/{name}/capacity?namespace=`` → its capacity curve."""
        service = self._registry.get(call.namespace, call.request.match_info["name"])
        return json_response(await self._planner.capacity(service))

    async def delete(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /v1/services/{name}?namespace=``."""
        self._check_changeable()
        name = call.request.match_info["name"]
        await self._registry.remove(call.namespace, name)
        call.note(name)
        return json_response(ServiceDeleted())

    async def create_token(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/services/{name}/tokens``: :class:`ServiceTokenRequest` → its token."""
        if not self._router_url:
            raise ConflictError(
                "the router of this control plane takes only the token that `fmesh serve` printed",
                where="tokens",
                remedy="use that token; on a cluster, `fmesh token create` makes others",
            )
        wanted = decode_body(await body_of(call.request), _token_decoder)
        if not 0 <= wanted.valid_s <= TOKEN_VALID_S_MAX:
            limit = f"{TOKEN_VALID_S_MAX:.0f}"
            text = f"{wanted.valid_s} is not a number of seconds from 0 to {limit}"
            raise SpecError([Problem("valid_s", text)])
        name = call.request.match_info["name"]
        created = await self._tokens.create(call.namespace, name, wanted.valid_s)
        call.note(name, token=created.id)
        return json_response(created)

    async def tokens(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/services/{name}/tokens?namespace=`` → :class:`ServiceTokenList`."""
        name = call.request.match_info["name"]
        return json_response(ServiceTokenList(self._tokens.list(call.namespace, name)))

    async def revoke_token(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /v1/services/{name}/tokens/{id}?namespace=``."""
        name, token_id = call.request.match_info["name"], call.request.match_info["id"]
        await self._tokens.revoke(call.namespace, name, token_id)
        call.note(name, token=token_id)
        return json_response(ServiceTokenRevoked())

    async def for_routers(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/router`` → ``RouterServices``: all services with the hashes of their tokens."""
        return json_response(self._tokens.for_routers(self._planner.entry))

    async def report(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/router``: ``RouterReport`` → :class:`RouterReportTaken`."""
        report = await read_body(call.request, _report_decoder, REPORT_BYTES_MAX)
        return json_response(RouterReportTaken(self._planner.loads.observe(report)))

    def _check_changeable(self) -> None:
        if self._objects:
            raise ConflictError(
                "the services of this control plane are FlowMeshService objects",
                where="services",
                remedy="`kubectl apply -f FILE` sets one, `kubectl delete fms NAME` deletes one",
            )


def _not_in_all(call: AuthorizedRequest) -> ForbiddenError:
    return ForbiddenError(
        f"user {call.user.name!r} may not list {Resource.SERVICES} in all namespaces",
        where="?all_namespaces=",
        remedy="name one namespace with ?namespace=, or ask an administrator",
    )
