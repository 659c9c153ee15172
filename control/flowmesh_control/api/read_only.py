"""Refuses what would write, where the store was opened for reading alone."""

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from flowmesh_control.api.responses import flag
from flowmesh_core.errors import StoreError, StoreFullError

_READS = frozenset({"GET", "HEAD"})
PLAN = "/v1/plan"
COLLECT = "/v1/cache/gc"


def refusing_writes(refusal: StoreError) -> Middleware:
    """A middleware that lets questions through.

    A collection writes nothing, and on a full disk it is the remedy.
    """

    def may(request: web.Request) -> bool:
        if request.method in _READS or request.path == PLAN:
            return True
        frees = isinstance(refusal, StoreFullError) or flag(request, "dry_run")
        return request.path == COLLECT and frees

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if may(request):
            return await handler(request)
        raise type(refusal)(refusal.message, where=refusal.where, remedy=refusal.remedy)

    return refuse
