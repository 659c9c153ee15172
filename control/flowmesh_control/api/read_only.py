"""Refuses requests that would write, while the store is read-only."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from flowmesh_control.api.responses import flag
from flowmesh_core.errors import StoreError, StoreFullError

_READS = frozenset({"GET", "HEAD"})
PLAN = "/v1/plan"
CALLERS = "/v1/router/callers"
COLLECT = "/v1/cache/gc"


def refusing_writes(refusal: StoreError) -> Middleware:
    """Returns a middleware that refuses requests that would write.

    A collection is allowed on a full disk: it writes nothing and frees space.
    """

    def is_allowed(request: web.Request) -> bool:
        if request.method in _READS or request.path in (PLAN, CALLERS):
            return True
        frees = isinstance(refusal, StoreFullError) or flag(request, "dry_run")
        return request.path == COLLECT and frees

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_allowed(request):
            return await handler(request)
        raise type(refusal)(refusal.message, where=refusal.where, remedy=refusal.remedy)

    return refuse
