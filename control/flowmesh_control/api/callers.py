"""The HTTP handler that reviews tokens for routers: whether a user may call services."""

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_control.api.authorization import (
    AuthorizedRequest,
    Route,
    check_namespace,
    fabric_route,
    own_namespace,
)
from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_core.protocol.caller_review import CallerReview, CallerReviewRequest

BODY_BYTES_MAX = 64 << 10
_decoder = msgspec.json.Decoder(CallerReviewRequest)


class CallerHandlers:
    """The handler of ``/v1/router/callers``."""

    def routes(self) -> list[Route]:
        """Returns the route: it needs the right to read the routers' list of services."""
        review, right = operations.REVIEW_CALLER, Resource.ROUTER
        # Counted in the request log, not logged each: the request changes nothing.
        return [
            fabric_route(review, self.review, Verb.GET, right, logging=Logging.COUNTED),
        ]

    async def review(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/router/callers``: :class:`CallerReviewRequest` → :class:`CallerReview`."""
        asked = await read_body(call.request, _decoder, BODY_BYTES_MAX)
        if asked.namespace:
            check_namespace(asked.namespace, "namespace")
        user = await call.users.user_of(asked.token) if asked.token else None
        if user is None:
            return json_response(CallerReview())
        namespace = asked.namespace or own_namespace(user)
        may = await call.users.may(user, Verb.CALL, Resource.SERVICES, namespace)
        return json_response(CallerReview(user.name, namespace, may))
