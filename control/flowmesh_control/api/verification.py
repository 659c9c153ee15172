"""The HTTP handler of the verification of a run's outputs."""

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_control.api.authorization import AuthorizedRequest, Route, run_route
from flowmesh_control.api.connections import while_connected
from flowmesh_control.api.responses import json_response
from flowmesh_control.verification.verification import OutputVerification


class VerificationHandlers:
    """Handler of ``/v1/runs/{uid}/verify``."""

    def __init__(self, verification: OutputVerification) -> None:
        self._verification = verification

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [run_route(operations.VERIFY_RUN, self.verify)]

    async def verify(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/verify?output=`` → :class:`VerificationReport`.

        All outputs without ``output``. A link that does not hold is part of the answer, not an
        error: its status is 200.
        """
        output = call.request.query.get("output", "")
        verification = self._verification.verify(call.uid, output)
        return json_response(await while_connected(call.request, verification))
