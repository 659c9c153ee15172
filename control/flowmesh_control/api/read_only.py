"""Refuses requests that would write, while the store is read-only."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from flowmesh_api.v1 import routes
from flowmesh_control.api.responses import flag
from flowmesh_core.errors import StoreError, StoreFullError

_READS = frozenset({"GET", "HEAD"})


def refusing_writes(refusal: StoreError) -> Middleware:
    """Returns a middleware that refuses requests that would write.

    A collection is allowed on a full disk: it writes nothing and frees space.
    """

    def is_allowed(request: web.Request) -> bool:
        if request.method in _READS or request.path in (routes.PLAN, routes.ROUTER_CALLERS):
            return True
        frees = isinstance(refusal, StoreFullError) or flag(request, "dry_run")
        return request.path == routes.CACHE_GC and frees

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_allowed(request):
            return await handler(request)
        raise type(refusal)(refusal.message, where=refusal.where, remedy=refusal.remedy)

    return refuse
