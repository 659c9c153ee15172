"""HTTP handlers of withheld results, for administrators."""

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.withheld import ReleaseBody, ReleaseReport, ResultSelector, WithholdBody
from flowmesh_control.api.authorization import AuthorizedRequest, Route, fabric_route
from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.withholding.withholding import Withholding
from flowmesh_core.errors import FlowMeshError

_withhold_decoder = msgspec.json.Decoder(WithholdBody)
_release_decoder = msgspec.json.Decoder(ReleaseBody)


class WithheldHandlers:
    """Handlers of ``/v1/withheld``."""

    def __init__(self, withholding: Withholding) -> None:
        self._withholding = withholding

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        policies = Resource.POLICIES
        return [
            fabric_route(operations.LIST_WITHHELD, self.withheld, Verb.LIST, policies),
            fabric_route(
                operations.WITHHOLD_RESULTS,
                self.withhold,
                Verb.DELETE,
                policies,
                logging=Logging.BEFORE,
            ),
            fabric_route(
                operations.RELEASE_WITHHELD,
                self.release,
                Verb.DELETE,
                policies,
                logging=Logging.BEFORE,
            ),
        ]

    async def withheld(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/withheld`` → :class:`WithheldPage`."""
        return json_response(await self._withholding.page())

    async def withhold(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/withheld`` :class:`WithholdBody` → :class:`WithholdReport`."""
        body = await read_body(call.request, _withhold_decoder)
        given = {name: str(getattr(body, name)).lower() for name in ("dry_run", "rerun", "purge")}
        call.note(**_conditions(body.results), **given)
        if body.dry_run and (body.rerun or body.purge):
            raise FlowMeshError(
                "dry_run changes nothing, so it does not go with rerun or purge",
                where="dry_run",
                remedy="leave out one of them",
            )
        report = await self._withholding.withhold(
            body.results, dry_run=body.dry_run, rerun=body.rerun, purge=body.purge
        )
        return json_response(report)

    async def release(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/withheld/release`` :class:`ReleaseBody` → :class:`ReleaseReport`."""
        body = await read_body(call.request, _release_decoder)
        call.note(**_conditions(body.results))
        return json_response(ReleaseReport(await self._withholding.release(body.results)))


def _conditions(results: ResultSelector) -> dict[str, str]:
    """Returns the conditions that are given, for the request log."""
    return {name: str(value) for name, value in msgspec.structs.asdict(results).items() if value}
