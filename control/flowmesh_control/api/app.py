"""The web application: the workers' door, the API and the metrics on one port."""

from aiohttp import web

from flowmesh_control.api.answers import errors_as_json, token_required
from flowmesh_control.api.audits import AuditRoom
from flowmesh_control.api.data import Data
from flowmesh_control.api.fabric import Fabric
from flowmesh_control.api.origins import Origins
from flowmesh_control.api.runs import Runs
from flowmesh_control.assembly import Parts
from flowmesh_control.cleaning import Cleaning
from flowmesh_control.planner import Planner

BODY_BYTES_MAX = 128 << 20


def build_app(parts: Parts, *, api_token: str) -> web.Application:
    """Registers every route; see the handlers for what they take and give."""
    given = parts.given
    planner = Planner(
        state=given.machine.state,
        cache=parts.cache,
        clock=given.clock,
        bumps=given.audits.quarantine.bumps,
    )
    cleaning = Cleaning(
        store=given.store,
        state=given.machine.state,
        archive=given.archive,
        result_ttl_s=given.settings.machine.result_ttl_s,
        clock=given.clock,
    )
    app = web.Application(
        middlewares=[errors_as_json, token_required(api_token)], client_max_size=BODY_BYTES_MAX
    )
    app.router.add_get("/worker", parts.gateway.handle)
    rooms = (
        Runs(parts, planner),
        Data(parts),
        Origins(parts),
        AuditRoom(parts),
        Fabric(parts, cleaning),
    )
    for room in rooms:
        app.add_routes(room.routes())
    return app
