"""HTTP handlers of audits and of the quarantine."""

import logging

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.audit import AuditBody, AuditReport
from flowmesh_control.api.authorization import (
    AuthorizedRequest,
    Route,
    fabric_route,
    for_any_user,
    limited,
    run_route,
)
from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.responses import json_response
from flowmesh_control.audit.submission import AuditSubmission
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.errors import NotFoundError
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.quotas.rates import RequestRate
from flowmesh_control.records.audit_records import AuditRecords
from flowmesh_core.errors import DamagedRecordError, FlowMeshError

log = logging.getLogger("flowmesh.control.api")


_body_decoder = msgspec.json.Decoder(AuditBody)


class AuditHandlers:
    """Handlers of ``/v1/audits`` and ``/v1/quarantine``."""

    def __init__(self, *, auditing: AuditSubmission, audits: AuditRecords, views: RunViews) -> None:
        self._auditing = auditing
        self._audits = audits
        self._views = views

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [
            limited(
                run_route(operations.AUDIT_RUN, self.begin, Verb.CREATE),
                rate=RequestRate.SUBMISSIONS,
            ),
            for_any_user(operations.LIST_AUDITS, self.list),
            run_route(operations.GET_AUDIT, self.report),
            for_any_user(operations.LIST_QUARANTINE, self.quarantine),
            fabric_route(
                operations.RELEASE_QUARANTINE, self.release, Verb.DELETE, Resource.POLICIES
            ),
        ]

    async def begin(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/runs/{uid}/audit`` :class:`AuditBody` → :class:`AuditAccepted`."""
        body = await read_body(call.request, _body_decoder)
        if not 0 < body.share <= 1:
            raise FlowMeshError(
                f"share is {body.share}: expected a number above 0 and at most 1",
                where="share",
                remedy="0.1 audits a tenth of the actions, 1 all of them",
            )
        begun = await self._auditing.begin(call.uid, share=body.share, seed=body.seed)
        return json_response(begun, status=201 if begun.uid and not begun.resumed else 200)

    async def list(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/audits`` → a list of :class:`AuditReport`, oldest first.

        An audit whose record is damaged is left out; ``GET /v1/audits/{uid}`` names the record.
        """
        audits = [s for s in self._views.summaries() if s.audit_of]
        seen = await call.listable(s.namespace for s in audits)
        uids = [s.uid for s in audits if s.namespace in seen]
        reports = [await self._readable(uid) for uid in uids]
        return json_response([report for report in reports if report is not None])

    async def _readable(self, uid: str) -> AuditReport | None:
        try:
            return await self._audits.report(uid)
        except NotFoundError:  # deleted by a collection since it was listed
            return None
        except DamagedRecordError as e:
            log.warning("audit %s is left out of the list: %s", uid, e)
            return None

    async def report(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/audits/{uid}`` → :class:`AuditReport`; ``Running`` until it has ended."""
        return json_response(await self._audits.report(call.uid))

    async def quarantine(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/quarantine`` → a list of :class:`QuarantineEntry`, the latest first."""
        found = self._audits.quarantine.active()
        if not await call.sees_all():
            runs = {s.uid: s.namespace for s in self._views.summaries()}
            seen = await call.listable(runs[q.run_uid] for q in found if q.run_uid in runs)
            found = [q for q in found if runs.get(q.run_uid) in seen]
        return json_response(found)

    async def release(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /v1/quarantine/{class or prefix}`` → the released :class:`QuarantineEntry`."""
        name = call.request.match_info["name"]
        return json_response(await self._audits.quarantine.release(name))
