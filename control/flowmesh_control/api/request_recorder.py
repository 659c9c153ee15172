"""Logs the requests of the API: each route says how (:class:`Logging`).

A middleware around everything else sees how each request was answered. The authorizer and the
handlers add what they know to its :class:`RequestFacts`. Never logged: tokens, queries, bodies,
content, references.
"""

import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from flowmesh_api.v1.request_log import LogEntry, RequestUser
from flowmesh_control.auth.users import User
from flowmesh_control.request_log.counts import CountedRequest
from flowmesh_control.request_log.entries import (
    COMPLETE,
    RECEIVED,
    STARTED,
    make_entry,
    make_reference,
    make_user,
    new_id,
)
from flowmesh_control.request_log.request_log import RequestLog
from flowmesh_core.errors import StoreError, StoreFullError

_REFUSED = frozenset({401, 403, 404, 409, 429})
_CLIENT_LEFT = 499
_LINEAGE = "lineage"


class Logging(StrEnum):
    """How the requests of a route are logged."""

    COUNTED = "plain reads: as counts by minute; refused ones each"
    EACH = "changes: each"
    DOWNLOAD = "content: each, when its first byte is sent"
    BEFORE = "what destroys: each, and durably before it is carried out"
    FREES_SPACE = "as BEFORE, but on a full store carried out all the same"

    @property
    def is_before(self) -> bool:
        """Whether a request is written before it is carried out, and its end before the answer."""
        return self in (Logging.BEFORE, Logging.FREES_SPACE)


@dataclass(slots=True)
class RequestFacts:
    """What is known of a request while it is served.

    Attributes:
        user: None before its token was accepted.
        namespace: of the object; empty for none or several.
        name: of the object, such as a run's uid.
        annotations: more of it, without the prefix ``flowmesh.dev/``.
        is_logged: whether its entry was written already.
    """

    received_s: float = 0.0
    audit_id: str = ""
    user: User | None = None
    namespace: str = ""
    name: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    is_logged: bool = False


_FACTS = web.RequestKey("flowmesh.facts", RequestFacts)


def facts_of(request: web.Request) -> RequestFacts:
    """Returns what is known of a request, to read and to add to."""
    if _FACTS not in request:
        request[_FACTS] = RequestFacts()
    return request[_FACTS]


@dataclass(frozen=True, slots=True)
class LoggedRoute:
    """What the log needs to know of a route: its verb, how it is logged, and its path."""

    verb: str
    logging: Logging
    path: str

    @property
    def resource(self) -> str:
        """The first segment of the path below ``/v1``."""
        return self.path.removeprefix("/v1").split("/")[1]

    @property
    def is_named(self) -> bool:
        """Whether the path has the name of an object; that of lineage may be a reference."""
        return self.resource != _LINEAGE

    @property
    def subresource(self) -> str:
        """The path after the object, such as ``cancel``, with its braces."""
        rest = self.path.removeprefix("/v1").split("/")[2:]
        return "/".join(rest[1:] if rest and rest[0].startswith("{") else rest)


class RequestRecorder:
    """Adds the entries of API requests to the request log."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self._routes: dict[tuple[str, str], LoggedRoute] = {}

    def add_route(self, method: str, route: LoggedRoute) -> None:
        """Logs the requests of a route from now on."""
        self._routes[method, route.path] = route

    async def before(self, request: web.Request) -> None:
        """Writes the entry of an authorized request that destroys something.

        Raises:
            RequestLogError, StoreFullError: it cannot be written, so nothing may be destroyed.
        """
        route, facts = self._route(request), facts_of(request)
        if route is None or not route.logging.is_before:
            return
        self._log.add(self._entry(request, route, facts, RECEIVED))
        try:
            await self._log.write_now()
        except StoreFullError:
            if route.logging is not Logging.FREES_SPACE:
                raise

    async def started(self, request: web.Request, response: web.StreamResponse) -> None:
        """Logs a download when its headers are sent; a signal of the application."""
        route, facts = self._route(request), facts_of(request)
        if route is not None and route.logging is Logging.DOWNLOAD and _is_ok(response.status):
            facts.is_logged = True
            self._log.add(self._entry(request, route, facts, STARTED, response.status))

    def middleware(self) -> Middleware:
        """Returns the middleware that logs how requests were answered."""

        @web.middleware
        async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
            route = self._route(request)
            if route is None:
                return await handler(request)
            facts = facts_of(request)
            facts.received_s, facts.audit_id = self._log.now_s(), new_id()
            try:
                response = await handler(request)
            except BaseException:
                self._answered(request, route, facts, _CLIENT_LEFT)
                raise
            self._answered(request, route, facts, response.status)
            if route.logging.is_before and _is_ok(response.status):
                await self._write_end()
            return response

        return record

    async def _write_end(self) -> None:
        """Writes how a request ended before its answer is sent.

        What it destroyed is gone: it is answered even if the store fails now. That it was asked for
        is written already, and this entry waits in memory.
        """
        with contextlib.suppress(StoreError):
            await self._log.write_now()

    def _answered(
        self, request: web.Request, route: LoggedRoute, facts: RequestFacts, code: int
    ) -> None:
        if facts.is_logged:
            return
        if code in _REFUSED:
            self._log.add_refusal(self._entry(request, route, facts, COMPLETE, code))
        elif route.logging is Logging.COUNTED or (
            route.logging is Logging.DOWNLOAD and code != _CLIENT_LEFT
        ):
            user = _user(facts)
            self._log.count(CountedRequest(user, facts.namespace, route.verb, route.resource, code))
        else:
            self._log.add(self._entry(request, route, facts, COMPLETE, code))

    def _entry(
        self,
        request: web.Request,
        route: LoggedRoute,
        facts: RequestFacts,
        stage: str,
        code: int = 0,
    ) -> LogEntry:
        named = request.match_info if route.is_named else {}
        name = facts.name or named.get("uid", "") or named.get("name", "")
        return make_entry(
            stage=stage,
            verb=route.verb,
            uri=request.path if route.is_named else route.path,
            user=_user(facts),
            received_s=facts.received_s,
            at_s=self._log.now_s(),
            source=request.remote or "",
            about=make_reference(
                route.resource,
                namespace=facts.namespace,
                name=name,
                subresource=route.subresource,
            ),
            code=code,
            annotations={f"flowmesh.dev/{key}": text for key, text in facts.annotations.items()},
            audit_id=facts.audit_id,
        )

    def _route(self, request: web.Request) -> LoggedRoute | None:
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        return self._routes.get((request.method, path))


def _user(facts: RequestFacts) -> RequestUser:
    user = facts.user
    return RequestUser() if user is None else make_user(user.name, user.uid, user.groups)


def _is_ok(status: int) -> bool:
    return status < HTTPStatus.BAD_REQUEST
