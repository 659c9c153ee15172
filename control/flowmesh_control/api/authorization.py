"""Authorization of the API: the right that each route needs, and the check of it.

Each route states the verb and resource that it needs. A handler receives an
:class:`AuthorizedRequest`, which only the :class:`Authorizer` makes, so no handler runs without a
check. A run that a user may not see is answered as one that does not exist, so that its name
reveals nothing.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from flowmesh_api.v1.operation import Operation
from flowmesh_api.v1.problems import Problem
from flowmesh_control.api.request_body import body_of, decode_body
from flowmesh_control.api.request_recorder import (
    LoggedRoute,
    Logging,
    RequestRecorder,
    facts_of,
)
from flowmesh_control.auth.unverified_connections import mark_verified
from flowmesh_control.auth.users import Resource, User, Users, Verb
from flowmesh_control.errors import ForbiddenError, NotFoundError, UnknownUserError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.quotas.rates import OpenLimit, Rates, RequestRate
from flowmesh_core.errors import FlowMeshError, SpecError
from flowmesh_core.spec.fields import NAMESPACE_PATTERN, PATTERN_WORDS

DEFAULT_NAMESPACE = "default"
_SCHEME = "Bearer "


class NamespaceSource(StrEnum):
    """Which part of a request names its namespace."""

    RUN = "the run in the path"
    QUERY = "the query's namespace"
    BODY = "the workflow in the body"
    PROJECT = "the header OpenAI-Project, or the service account's own"
    FABRIC = "no namespace: the whole fabric"
    OWN = "all namespaces that the user may see"


@dataclass(frozen=True, slots=True)
class AuthorizedRequest:
    """A request whose user has the right that its route needs.

    Attributes:
        namespace: the request's namespace; empty for none or several.
        uid: of the run in the path; empty where the route names none.
    """

    request: web.Request
    user: User
    users: Users
    namespace: str = ""
    uid: str = ""

    async def listable(self, namespaces: Iterable[str]) -> frozenset[str]:
        """Returns those of the namespaces whose runs the user may list."""
        wanted = sorted(set(namespaces))
        if await self.sees_all():
            return frozenset(wanted)
        # Concurrently: there may be hundreds, and each is a request to the API server.
        allowed = await asyncio.gather(*(self._may(Verb.LIST, n) for n in wanted))
        return frozenset(n for n, may in zip(wanted, allowed, strict=True) if may)

    async def sees_all(self) -> bool:
        """Whether the user may list the runs of every namespace."""
        return await self._may(Verb.LIST, "")

    async def may_purge(self) -> bool:
        """Whether the user is an administrator, who may delete results of every namespace."""
        return await self.users.may(self.user, Verb.DELETE, Resource.POLICIES, "")

    async def _may(self, verb: Verb, namespace: str) -> bool:
        return await self.users.may(self.user, verb, Resource.WORKFLOWS, namespace)

    def note(self, name: str = "", **annotations: str) -> None:
        """Adds the object's name and annotations to the request's entry in the request log."""
        facts = facts_of(self.request)
        facts.name = name or facts.name
        facts.annotations.update(annotations)


Handling = Callable[[AuthorizedRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of the API and the right that it needs; made by the functions below.

    Attributes:
        pattern: the path for the router of aiohttp, where it is not that of the operation.
        rate: what a request counts as besides a request, by ``limited``.
        open_limit: what it counts as while it is answered.
    """

    operation: Operation
    handling: Handling
    verb: Verb
    resource: Resource
    namespace_source: NamespaceSource
    logging: Logging | None = None
    rate: RequestRate | None = None
    open_limit: OpenLimit | None = None
    pattern: str = ""

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return self.operation.method

    @property
    def logged(self) -> LoggedRoute:
        """How its requests are logged: by default reads as counts, everything else each."""
        usual = Logging.COUNTED if self.method == "GET" else Logging.EACH
        return LoggedRoute(self.verb, self.logging or usual, self.operation.path)


def run_route(
    operation: Operation,
    handling: Handling,
    verb: Verb = Verb.GET,
    *,
    logging: Logging | None = None,
) -> Route:
    """Returns a route of a run: needs the verb on workflows in the run's namespace."""
    return Route(operation, handling, verb, Resource.WORKFLOWS, NamespaceSource.RUN, logging)


def namespace_route(
    operation: Operation, handling: Handling, verb: Verb, *, logging: Logging | None = None
) -> Route:
    """Returns a route that needs the verb on workflows in the namespace of ``?namespace=``."""
    source = NamespaceSource.QUERY
    return Route(operation, handling, verb, Resource.WORKFLOWS, source, logging)


def project_route(
    operation: Operation,
    handling: Handling,
    verb: Verb,
    *,
    logging: Logging | None = None,
    pattern: str = "",
) -> Route:
    """Returns a route of OpenAI's API: needs the verb on workflows in its project's namespace."""
    source = NamespaceSource.PROJECT
    return Route(operation, handling, verb, Resource.WORKFLOWS, source, logging, pattern=pattern)


def workflow_route(
    operation: Operation, handling: Handling, *, logging: Logging | None = None
) -> Route:
    """Returns a route that needs to create workflows in the namespace of the body's workflow."""
    source = NamespaceSource.BODY
    return Route(operation, handling, Verb.CREATE, Resource.WORKFLOWS, source, logging)


def fabric_route(
    operation: Operation,
    handling: Handling,
    verb: Verb,
    resource: Resource,
    *,
    logging: Logging | None = None,
) -> Route:
    """Returns a route that needs the verb on a resource without a namespace."""
    return Route(operation, handling, verb, resource, NamespaceSource.FABRIC, logging)


def for_any_user(operation: Operation, handling: Handling) -> Route:
    """Returns a route for any known user, who sees the runs of :meth:`AuthorizedRequest.seen`."""
    return Route(operation, handling, Verb.LIST, Resource.WORKFLOWS, NamespaceSource.OWN)


def limited(
    route: Route, *, rate: RequestRate | None = None, open_limit: OpenLimit | None = None
) -> Route:
    """Returns a route with a limit of the namespace's quota besides that on requests."""
    return replace(route, rate=rate, open_limit=open_limit)


class Authorizer:
    """Checks that a request's user has the right that its route needs, and asks not too often."""

    def __init__(
        self, users: Users, views: RunViews, rates: Rates, recorder: RequestRecorder
    ) -> None:
        self._users = users
        self._views = views
        self._rates = rates
        self._recorder = recorder

    def protect(self, route: Route) -> Handler:
        """Returns the route's handler, preceded by its authorization check."""

        async def authorize(request: web.Request) -> web.StreamResponse:
            user = facts_of(request).user = await self._user(request)
            mark_verified(request)
            call = AuthorizedRequest(request, user, self._users)
            try:
                call = await self._authorized(route, call)
            finally:  # a refused request counts as well
                self._rates.take(RequestRate.REQUESTS, user.name, call.namespace)
            if route.rate is not None:
                self._rates.take(route.rate, user.name, call.namespace)
            await self._recorder.before(request)
            if route.open_limit is None:
                return await route.handling(call)
            with self._rates.opened(route.open_limit, user.name, call.namespace):
                return await route.handling(call)

        self._recorder.add_route(route.method, route.logged)
        return authorize

    async def _user(self, request: web.Request) -> User:
        given = request.headers.get("Authorization", "")
        token = given.removeprefix(_SCHEME).strip()
        user = await self._users.user_of(token) if token and given.startswith(_SCHEME) else None
        if user is None:
            raise UnknownUserError(
                "the bearer token is missing, wrong, or has expired",
                where="Authorization",
                remedy="fmesh reads it from the state folder or the kubeconfig; with curl: "
                "-H 'Authorization: Bearer …'",
            )
        return user

    async def _authorized(self, route: Route, call: AuthorizedRequest) -> AuthorizedRequest:
        match route.namespace_source:
            case NamespaceSource.OWN:
                return call
            case NamespaceSource.RUN:
                return await self._authorized_for_run(route, call)
            case NamespaceSource.QUERY:
                call = replace(call, namespace=_queried(call.request))
            case NamespaceSource.PROJECT:
                call = replace(call, namespace=_project(call))
            case NamespaceSource.BODY:
                call = replace(call, namespace=_submitted(await body_of(call.request)))
            case NamespaceSource.FABRIC:
                pass
        facts_of(call.request).namespace = call.namespace
        if not await self._may(route, call, call.namespace):
            raise _forbidden(route, call, call.namespace)
        return call

    async def _authorized_for_run(self, route: Route, call: AuthorizedRequest) -> AuthorizedRequest:
        """Resolves the run's name to the first run of that name that the user may see.

        Raises:
            ForbiddenError: the user may see that run, but not do this to it.
            NotFoundError: no run of that name is visible to the user.
        """
        name = call.request.match_info["uid"]
        for uid, namespace in await self._views.runs_named(name):
            may = await self._may(route, call, namespace)
            if not may and not await self._sees(call, namespace):
                continue
            facts = facts_of(call.request)
            facts.name, facts.namespace = uid, namespace
            if may:
                return replace(call, uid=uid, namespace=namespace)
            raise _forbidden(route, call, namespace)
        raise NotFoundError(
            f"there is no run {name!r}", where="runs", remedy="`fmesh status --all` lists the runs"
        )

    async def _may(self, route: Route, call: AuthorizedRequest, namespace: str) -> bool:
        return await self._users.may(call.user, route.verb, route.resource, namespace)

    async def _sees(self, call: AuthorizedRequest, namespace: str) -> bool:
        for verb in (Verb.LIST, Verb.GET):
            if await self._users.may(call.user, verb, Resource.WORKFLOWS, namespace):
                return True
        return False


def _forbidden(route: Route, call: AuthorizedRequest, namespace: str) -> ForbiddenError:
    place = f" in namespace {namespace}" if namespace else ""
    of_objects = not route.resource.startswith("/")
    group = ".flowmesh.dev" if of_objects else ""
    option = f" -n {namespace}" if namespace else ""
    return ForbiddenError(
        f"user {call.user.name!r} may not {route.verb} {route.resource}{group}{place}",
        where=call.request.path,
        remedy="ask an administrator for a role with this right; "
        f"`kubectl auth can-i {route.verb} {route.resource}{group}{option}` asks the API server",
    )


def _queried(request: web.Request) -> str:
    """Returns the namespace of ``?namespace=``; refuses one that no workflow can have."""
    namespace = request.query.get("namespace") or DEFAULT_NAMESPACE
    check_namespace(namespace, "?namespace=")
    return namespace


def _project(call: AuthorizedRequest) -> str:
    """Returns the namespace of the header ``OpenAI-Project``, or else the service account's."""
    namespace = call.request.headers.get("OpenAI-Project") or own_namespace(call.user)
    check_namespace(namespace, "OpenAI-Project")
    return namespace


def own_namespace(user: User) -> str:
    """Returns the namespace of a service account; for other users the default."""
    parts = user.name.split(":")
    is_account = parts[:2] == ["system", "serviceaccount"]
    return parts[2] if is_account else DEFAULT_NAMESPACE


class _SubmissionNamespace(msgspec.Struct, frozen=True):
    """The parts of a submission that give its namespace."""

    document: dict[str, Any]
    namespace: str = ""


_namespace_decoder = msgspec.json.Decoder(_SubmissionNamespace)


def _submitted(body: bytes) -> str:
    """Returns the namespace of a submission, to which the handler submits it."""
    named = decode_body(body, _namespace_decoder)
    metadata = named.document.get("metadata")
    written = metadata.get("namespace") if isinstance(metadata, dict) else None
    namespace = named.namespace or (DEFAULT_NAMESPACE if written is None else written)
    if not isinstance(namespace, str) or not _is_namespace(namespace):
        words = PATTERN_WORDS[NAMESPACE_PATTERN]
        raise SpecError([Problem("metadata.namespace", f"{namespace!r} is not {words}")])
    return namespace


def check_namespace(namespace: str, where: str) -> None:
    """Refuses a text that is not the name of a namespace.

    Args:
        namespace: the text.
        where: the place of the request that has it.

    Raises:
        FlowMeshError: it cannot be the name of one.
    """
    if not _is_namespace(namespace):
        raise FlowMeshError(
            f"{namespace[:80]!r} is not a namespace",
            where=where,
            remedy=f"write {PATTERN_WORDS[NAMESPACE_PATTERN]}",
        )


def _is_namespace(text: str) -> bool:
    return re.fullmatch(NAMESPACE_PATTERN, text) is not None
