"""The web application: the workers' door, the API and the metrics on one port."""

from typing import TYPE_CHECKING

from aiohttp import web

from flowmesh_control.api.audits import AuditHandlers
from flowmesh_control.api.authorization import Authorizer
from flowmesh_control.api.data import DataHandlers
from flowmesh_control.api.fabric import FabricHandlers
from flowmesh_control.api.lineage import LineageHandlers
from flowmesh_control.api.probes import ProbeHandlers
from flowmesh_control.api.read_only import refusing_writes
from flowmesh_control.api.receipts import AllReceipts
from flowmesh_control.api.responses import errors_as_json
from flowmesh_control.api.runs import RunHandlers
from flowmesh_control.auth.users import NamespaceLabels, Users
from flowmesh_control.cache.admin import CacheAdmin
from flowmesh_control.queries.planner import Planner
from flowmesh_control.wiring import Parts

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware

BODY_BYTES_MAX = 128 << 20


def build_app(parts: Parts, users: Users, labels: NamespaceLabels) -> web.Application:
    """Registers every route behind its door; see the handlers for what they take and give.

    Without a user's token there are ``/worker``, where workers present their own, ``/healthz``,
    and, where the settings say so, ``/metrics``.
    """
    given = parts.given
    planner = Planner(
        state=given.machine.state,
        cache=parts.cache,
        clock=given.clock,
        bumps=given.audits.quarantine.bumps,
    )
    cleaning = CacheAdmin(
        store=given.store,
        state=given.machine.state,
        archive=given.archive,
        result_ttl_s=given.settings.machine.result_ttl_s,
        clock=given.clock,
    )
    middlewares: list[Middleware] = [errors_as_json]
    if given.refusal is not None:
        middlewares.append(refusing_writes(given.refusal))
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
    app.router.add_get("/worker", parts.gateway.handle)
    probes = ProbeHandlers(parts)
    app.add_routes(probes.open_routes())
    rooms = (
        RunHandlers(parts, planner, labels),
        AllReceipts(parts),
        DataHandlers(parts, labels),
        LineageHandlers(parts, labels),
        AuditHandlers(parts),
        FabricHandlers(parts, cleaning),
        probes,
    )
    guard = Authorizer(users, parts.views)
    for room in rooms:
        for route in room.routes():
            app.router.add_route(route.method, route.path, guard.door(route))
    return app
