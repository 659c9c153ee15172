"""HTTP handlers of runs: submit, show, watch, amend, cancel, delete and explain."""

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.runs import AmendBody, CancelBody, DeletedRun, RunStatus, SubmitBody
from flowmesh_control.api.authorization import (
    AuthorizedRequest,
    Route,
    fabric_route,
    for_any_user,
    limited,
    run_route,
    workflow_route,
)
from flowmesh_control.api.ports import RunWriter
from flowmesh_control.api.request_body import body_of, decode_body, read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import flag, json_response
from flowmesh_control.audit.sampled_audits import is_sampled_audit
from flowmesh_control.auth.users import NamespaceLabels, Resource, Verb
from flowmesh_control.cache.run_deletion import RunDeletion
from flowmesh_control.errors import ConflictError, ForbiddenError, NotFoundError
from flowmesh_control.queries.change_feed import RunChangeFeed
from flowmesh_control.queries.planner import Planner
from flowmesh_control.queries.run_queries import RunQueries
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.quotas.rates import OpenLimit, RequestRate
from flowmesh_control.runs.admission import Admission, Submission
from flowmesh_control.runs.repin import RepinService
from flowmesh_control.runs.resume import RunResumption
from flowmesh_core.errors import FlowMeshError, SpecError
from flowmesh_core.spec.quantities import budget, seconds
from flowmesh_core.spec.workflow import PRIORITY_MAX

REASON_CHARACTERS = 1000
GAP_FACTOR = 10
"""Pause after each status of a watched run, as a multiple of the time that it took to send.

So watching a large run, whose status takes long to make, uses at most a tenth of the event loop."""


_submit_decoder = msgspec.json.Decoder(SubmitBody)
_cancel_decoder = msgspec.json.Decoder(CancelBody)
_amend_decoder = msgspec.json.Decoder(AmendBody)


class RunHandlers:
    """Handlers of ``/v1/runs`` and ``/v1/plan``."""

    def __init__(
        self,
        *,
        commands: RunWriter,
        deletion: RunDeletion,
        views: RunViews,
        queries: RunQueries,
        changes: RunChangeFeed,
        admission: Admission,
        planner: Planner,
        repinning: RepinService,
        resumption: RunResumption,
        labels: NamespaceLabels,
        objects: bool,
    ) -> None:
        """Keeps the services that the handlers use.

        Args:
            commands: submits, amends and cancels.
            deletion: deletes.
            views: status, logs and receipts.
            queries: why a step waits, and where it could run.
            changes: wakes watchers of a run.
            admission: compiles workflows that are only planned.
            planner: forecasts.
            repinning: moves runs to the newest engine versions.
            resumption: continues runs that stopped the control plane.
            labels: of namespaces.
            objects: whether runs are objects of the cluster; the API then neither submits nor
                amends them.
        """
        self._commands = commands
        self._deletion = deletion
        self._views = views
        self._queries = queries
        self._changes = changes
        self._admission = admission
        self._planner = planner
        self._repinning = repinning
        self._resumption = resumption
        self._labels = labels
        self._objects = objects

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [
            limited(
                workflow_route(operations.SUBMIT_RUN, self.submit), rate=RequestRate.SUBMISSIONS
            ),
            limited(
                workflow_route(operations.PLAN_RUN, self.plan, logging=Logging.COUNTED),
                rate=RequestRate.PLANS,
            ),
            for_any_user(operations.LIST_RUNS, self.list),
            run_route(operations.GET_RUN, self.status),
            limited(
                run_route(operations.WATCH_RUN, self.watch),
                open_limit=OpenLimit.WATCHES,
            ),
            run_route(operations.CANCEL_RUN, self.cancel, Verb.UPDATE),
            run_route(operations.DELETE_RUN, self.delete, Verb.DELETE),
            run_route(operations.AMEND_RUN, self.amend, Verb.UPDATE),
            run_route(operations.REPIN_RUN, self.repin, Verb.UPDATE),
            fabric_route(operations.RESUME_RUN, self.resume, Verb.UPDATE, Resource.WORKFLOWS),
            run_route(operations.LIST_LOGS, self.logs),
            run_route(operations.GET_WHY, self.why),
            run_route(operations.EXPLAIN_STEP, self.explain),
            run_route(operations.GET_RECEIPT, self.receipt),
        ]

    async def submit(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/runs`` → :class:`RunAccepted`.

        With ``?check=1`` a workflow is refused whose forecast exceeds its budget or deadline, or
        of which no worker can ever run a step.
        """
        if self._objects:
            raise ConflictError(
                "the runs of this control plane are FlowMeshWorkflow objects",
                where="runs",
                remedy="create one: `fmesh submit FILE`, or `kubectl create -f FILE`",
            )
        submission = self._submission(call, await read_body(call.request, _submit_decoder))
        check = flag(call.request, "check")
        accepted = await self._commands.submit(replace(submission, check_terms=check))
        call.note(accepted.uid)
        return json_response(accepted, status=200 if accepted.resumed else 201)

    async def plan(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/plan`` → :class:`Forecast`."""
        body = await read_body(call.request, _submit_decoder)
        compiled = await self._admission.compile(self._submission(call, body))
        return json_response(await self._planner.forecast(compiled, body.pins))

    async def list(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs?namespace=`` → a list of :class:`RunSummary`, oldest first."""
        found = self._views.summaries(call.request.query.get("namespace"))
        seen = await call.listable(s.namespace for s in found)
        return json_response([s for s in found if s.namespace in seen])

    async def status(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}`` → :class:`RunStatus`; uid, its beginning, or a name."""
        return json_response(await self._views.status(call.uid))

    async def watch(self, call: AuthorizedRequest) -> web.StreamResponse:
        """``GET /v1/runs/{uid}/watch`` → a :class:`RunStatus` a line, until the run has ended."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(call.request)
        with contextlib.suppress(ConnectionResetError):  # the client has disconnected
            await self._show(call.uid, response)
        return response

    async def _show(self, uid: str, response: web.StreamResponse) -> None:
        async for _ in self._changes.of(uid):
            started = time.monotonic()
            status = await self._views.status(uid)
            await response.write(msgspec.json.encode(status) + b"\n")
            if status.phase in ENDED_PHASES:
                break
            await asyncio.sleep(GAP_FACTOR * (time.monotonic() - started))
        await response.write_eof()

    async def cancel(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/runs/{uid}/cancel`` :class:`CancelBody` → :class:`RunStatus`."""
        uid = await self._active_uid(call)
        body = await body_of(call.request)
        given = decode_body(body, _cancel_decoder) if body else CancelBody()
        if len(given.reason) > REASON_CHARACTERS:  # it stays in every list of runs
            raise FlowMeshError(
                f"the reason has {len(given.reason)} characters, of at most {REASON_CHARACTERS}",
                where="reason",
                remedy="shorten it",
            )
        reason = given.reason or "cancelled by the user"
        await self._commands.cancel(uid, reason, given.submitter)
        return json_response(await self._views.status(uid))

    async def delete(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /v1/runs/{uid}`` → :class:`DeletedRun`; of a run that has ended."""
        status = await self._changeable(call)
        await self._deletion.delete(call.uid)
        return json_response(DeletedRun(status.uid, status.name, status.namespace))

    async def amend(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/runs/{uid}/amend`` :class:`AmendBody` → :class:`RunStatus`."""
        uid = await self._active_uid(call)
        if self._objects:
            raise ConflictError(
                "this run is defined by its FlowMeshWorkflow object",
                where=f"runs/{uid}",
                remedy="change the object: `fmesh amend`, or `kubectl edit fmw NAME`",
            )
        body = await read_body(call.request, _amend_decoder)
        await self._commands.amend(uid, _changes(body))
        return json_response(await self._views.status(uid))

    async def repin(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/runs/{uid}/repin`` → :class:`RepinnedRun`, on the newest engine versions."""
        return json_response(await self._repinning.repin(await self._active_uid(call)))

    async def resume(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/runs/{uid}/resume`` → :class:`RunStatus`; for administrators, by full uid."""
        uid = call.request.match_info["uid"]
        await self._views.status(uid)
        await self._resumption.resume(uid)
        return json_response(await self._views.status(uid))

    async def logs(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/logs?step=`` → a list of :class:`StepLogLine`."""
        step = call.request.query.get("step")
        return json_response(await self._views.logs(call.uid, step))

    async def why(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/why?step=`` → :class:`Why`."""
        return json_response(await self._queries.why(call.uid, _step(call.request)))

    async def explain(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/explain?step=`` → :class:`Explanation`."""
        return json_response(await self._queries.explain(call.uid, _step(call.request)))

    async def receipt(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/receipt`` → :class:`Receipt`."""
        return json_response(await self._views.receipt(call.uid))

    def _submission(self, call: AuthorizedRequest, body: SubmitBody) -> Submission:
        """Returns the body's submission, for the namespace that was authorized."""
        return Submission(
            document=body.document,
            namespace=call.namespace,
            uploads=body.uploads,
            labels=self._labels(call.namespace),
            resume=body.resume,
            submitter=body.submitter,
        )

    async def _changeable(self, call: AuthorizedRequest) -> RunStatus:
        """Returns the status of the request's run; refuses a tenant who would stop a sample."""
        status = await self._views.status(call.uid)
        if is_sampled_audit(status) and not await call.may_purge():
            raise ForbiddenError(
                f"run {call.uid} is a sampled audit, which the cache policy asks for",
                where=f"runs/{call.uid}",
                remedy="it ends by itself; administrators may change it",
            )
        return status

    async def _active_uid(self, call: AuthorizedRequest) -> str:
        uid = call.uid
        status = await self._changeable(call)
        if status.phase in ENDED_PHASES:
            raise ConflictError(
                f"run {uid} has ended ({status.phase}) and cannot be changed",
                where=f"runs/{uid}",
                remedy="submit the workflow again; published results are reused",
            )
        return uid


def _step(request: web.Request) -> str:
    step = request.query.get("step", "")
    if not step:
        raise NotFoundError("the step is missing", where="?step=", remedy="name a step of the run")
    return step


def _changes(body: AmendBody) -> dict[str, Any]:
    """Returns the changes in the form of :class:`Amended`.

    Raises:
        SpecError: a value is malformed.
    """
    found: dict[str, Any] = {}
    if body.suspend is not None:
        found["suspend"] = body.suspend
    if body.priority is not None:
        if abs(body.priority) > PRIORITY_MAX:
            text = f"expected an integer of -{PRIORITY_MAX} to {PRIORITY_MAX}"
            raise SpecError([Problem("spec.priority", text)])
        found["priority"] = body.priority
    if body.budget_usd is not None:
        found["budgetNanousd"] = _read("spec.budgetUsd", budget, body.budget_usd)
    if body.deadline is not None:
        found["deadlineS"] = _read("spec.deadline", seconds, body.deadline)
    return found


def _read(path: str, reader: Any, text: str) -> Any:
    try:
        return reader(text)
    except (ValueError, ArithmeticError) as e:
        raise SpecError([Problem(path, f"{text!r} cannot be read: {e}")]) from e
