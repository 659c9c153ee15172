"""Audits and the quarantine over HTTP."""

import msgspec
from aiohttp import web

from flowmesh_control.api.answers import answer
from flowmesh_control.assembly import Parts
from flowmesh_core.errors import FlowMeshError


class AuditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/runs/{uid}/audit``: a share of the run's actions, drawn by a seed."""

    share: float = 1.0
    seed: int = 0


class AuditRoom:
    """The handlers of audits."""

    def __init__(self, parts: Parts) -> None:
        """Takes the parts that audit."""
        self._parts = parts

    def routes(self) -> list[web.RouteDef]:
        """Every route of this class."""
        return [
            web.post("/v1/runs/{uid}/audit", self.begin),
            web.get("/v1/audits", self.list),
            web.get("/v1/audits/{uid}", self.report),
            web.get("/v1/quarantine", self.quarantine),
            web.delete("/v1/quarantine/{name}", self.release),
        ]

    async def begin(self, request: web.Request) -> web.Response:
        """``POST /v1/runs/{uid}/audit`` :class:`AuditBody` → :class:`Begun`."""
        body = msgspec.json.decode(await request.read(), type=AuditBody)
        if not 0 < body.share <= 1:
            raise FlowMeshError(
                f"no share {body.share}", where="share", remedy="use more than 0, at most 1"
            )
        uid = await self._parts.views.resolve(request.match_info["uid"])
        begun = await self._parts.auditing.begin(uid, share=body.share, seed=body.seed)
        return answer(begun, status=201 if begun.uid and not begun.resumed else 200)

    async def list(self, _: web.Request) -> web.Response:
        """``GET /v1/audits`` → a list of :class:`AuditReport`, oldest first."""
        uids = [s.uid for s in self._parts.views.summaries() if s.audit_of]
        return answer([await self._parts.given.audits.report(uid) for uid in uids])

    async def report(self, request: web.Request) -> web.Response:
        """``GET /v1/audits/{uid}`` → :class:`AuditReport`; ``Running`` until it has ended."""
        uid = await self._parts.views.resolve(request.match_info["uid"])
        return answer(await self._parts.given.audits.report(uid))

    async def quarantine(self, _: web.Request) -> web.Response:
        """``GET /v1/quarantine`` → a list of :class:`Quarantined`, the latest first."""
        return answer(self._parts.given.audits.quarantine.active())

    async def release(self, request: web.Request) -> web.Response:
        """``DELETE /v1/quarantine/{class or its beginning}`` → :class:`Quarantined`, released."""
        released = await self._parts.given.audits.quarantine.release(request.match_info["name"])
        return answer(released)
