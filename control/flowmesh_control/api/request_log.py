"""HTTP handlers of the request log, for administrators."""

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_control.api.authorization import AuthorizedRequest, Route, fabric_route
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.request_log.reading import LogQuery, RequestLogReader


class RequestLogHandlers:
    """Handlers of ``/v1/request-log``."""

    def __init__(self, log: RequestLogReader) -> None:
        self._log = log

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        policies = Resource.POLICIES
        return [
            fabric_route(operations.LIST_REQUESTS, self.entries, Verb.UPDATE, policies),
            fabric_route(operations.CHECK_REQUEST_LOG, self.check, Verb.UPDATE, policies),
        ]

    async def entries(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/request-log?since=&user=&namespace=&after=`` → :class:`RequestLogPage`."""
        query = call.request.query
        wanted = LogQuery(
            since=query.get("since", ""),
            user=query.get("user", ""),
            namespace=query.get("namespace", ""),
            after=query.get("after", ""),
        )
        return json_response(await self._log.page(wanted))

    async def check(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/request-log/check`` → :class:`RequestLogCheck`."""
        return json_response(await self._log.check())
