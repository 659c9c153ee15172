"""Runs: submit, look, watch, amend, cancel, and ask why."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec
from aiohttp import web

from flowmesh_control.admission import Submission
from flowmesh_control.api.answers import answer, flag
from flowmesh_control.assembly import Parts
from flowmesh_control.explain import explain_step
from flowmesh_control.failures import ConflictError, NotFoundError
from flowmesh_control.planner import Planner, refuse_unmeetable
from flowmesh_control.views import OVER
from flowmesh_control.why import why_step
from flowmesh_core.errors import Problem, SpecError
from flowmesh_core.run.events import Amended, CancelRequested
from flowmesh_core.spec.quantities import budget, seconds

GAP_FACTOR = 10
"""A watcher of a run that is slow to project is shown it less often."""


class SubmitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /v1/runs`` and ``POST /v1/plan``; see ``admission.Submission``."""

    document: dict[str, Any]
    namespace: str = ""
    uploads: dict[str, str] = {}
    labels: dict[str, str] = {}
    uid: str = ""
    resume: bool = True

    def submission(self) -> Submission:
        """The same for admission."""
        return Submission(
            document=self.document,
            namespace=self.namespace,
            uploads=self.uploads,
            labels=self.labels,
            uid=self.uid,
            resume=self.resume,
        )


class AmendBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of ``POST /v1/runs/{uid}/amend``: the fields of a spec that may change."""

    suspend: bool | None = None
    priority: int | None = None
    budget_usd: str | None = None
    deadline: str | None = None

    def changes(self) -> dict[str, Any]:
        """As the machine reads it.

        Raises:
            SpecError: a value is malformed.
        """
        found: dict[str, Any] = {}
        if self.suspend is not None:
            found["suspend"] = self.suspend
        if self.priority is not None:
            found["priority"] = self.priority
        if self.budget_usd is not None:
            found["budgetNanousd"] = _read("spec.budgetUsd", budget, self.budget_usd)
        if self.deadline is not None:
            found["deadlineS"] = _read("spec.deadline", seconds, self.deadline)
        return found


class Runs:
    """The handlers below ``/v1/runs``."""

    def __init__(self, parts: Parts, planner: Planner) -> None:
        """Takes the parts that know runs."""
        self._parts = parts
        self._planner = planner

    def routes(self) -> list[web.RouteDef]:
        """Every route of this class."""
        return [
            web.post("/v1/runs", self.submit),
            web.post("/v1/plan", self.plan),
            web.get("/v1/runs", self.list),
            web.get("/v1/runs/{uid}", self.status),
            web.get("/v1/runs/{uid}/watch", self.watch),
            web.post("/v1/runs/{uid}/cancel", self.cancel),
            web.post("/v1/runs/{uid}/amend", self.amend),
            web.post("/v1/runs/{uid}/repin", self.repin),
            web.get("/v1/runs/{uid}/logs", self.logs),
            web.get("/v1/runs/{uid}/why", self.why),
            web.get("/v1/runs/{uid}/explain", self.explain),
            web.get("/v1/runs/{uid}/receipt", self.receipt),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        """``POST /v1/runs`` → :class:`Accepted`; with ``?check=1`` refuses the unmeetable."""
        body = msgspec.json.decode(await request.read(), type=SubmitBody)
        if flag(request, "check"):
            compiled = await self._parts.admission.compile(body.submission())
            refuse_unmeetable(await self._planner.forecast(compiled))
        accepted = await self._parts.admission.submit(body.submission())
        return answer(accepted, status=200 if accepted.resumed else 201)

    async def plan(self, request: web.Request) -> web.Response:
        """``POST /v1/plan`` → :class:`Forecast`."""
        body = msgspec.json.decode(await request.read(), type=SubmitBody)
        compiled = await self._parts.admission.compile(body.submission())
        return answer(await self._planner.forecast(compiled))

    async def list(self, request: web.Request) -> web.Response:
        """``GET /v1/runs?namespace=`` → a list of :class:`Summary`, oldest first."""
        return answer(self._parts.views.summaries(request.query.get("namespace")))

    async def status(self, request: web.Request) -> web.Response:
        """``GET /v1/runs/{uid}`` → :class:`RunStatus`; uid, its beginning, or a name."""
        return answer(await self._parts.views.status(await self._uid(request)))

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """``GET /v1/runs/{uid}/watch`` → a :class:`RunStatus` a line, until the run has ended."""
        uid = await self._uid(request)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # whoever watched has gone
            await self._show(uid, response)
        return response

    async def _show(self, uid: str, response: web.StreamResponse) -> None:
        async for _ in self._parts.changes.of(uid):
            started = time.monotonic()
            status = await self._parts.views.status(uid)
            await response.write(msgspec.json.encode(status) + b"\n")
            if status.phase in OVER:
                break
            await asyncio.sleep(GAP_FACTOR * (time.monotonic() - started))
        await response.write_eof()

    async def cancel(self, request: web.Request) -> web.Response:
        """``POST /v1/runs/{uid}/cancel`` ``{reason?}`` → :class:`RunStatus`."""
        uid = await self._unended(request)
        body = await request.read()
        said = str(msgspec.json.decode(body).get("reason", "")) if body else ""
        reason = said or "cancelled by the user"
        if uid in self._parts.given.waiting:
            return answer(await self._parts.repinning.cancel(uid, reason))
        await self._parts.loop.ask(CancelRequested(uid, reason))
        return answer(await self._parts.views.status(uid))

    async def amend(self, request: web.Request) -> web.Response:
        """``POST /v1/runs/{uid}/amend`` :class:`AmendBody` → :class:`RunStatus`."""
        uid = await self._unended(request)
        body = msgspec.json.decode(await request.read(), type=AmendBody)
        waits = self._parts.given.waiting.get(uid)
        if waits is not None:
            raise ConflictError(waits.message, where=f"runs/{uid}", remedy=waits.remedy)
        await self._parts.loop.ask(Amended(uid, body.changes()))
        return answer(await self._parts.views.status(uid))

    async def repin(self, request: web.Request) -> web.Response:
        """``POST /v1/runs/{uid}/repin`` → :class:`RepinnedRun`: on with the newest versions."""
        return answer(await self._parts.repinning.repin(await self._unended(request)))

    async def logs(self, request: web.Request) -> web.Response:
        """``GET /v1/runs/{uid}/logs?step=`` → a list of :class:`StepLogLine`."""
        uid = await self._uid(request)
        return answer(await self._parts.views.logs(uid, request.query.get("step")))

    async def why(self, request: web.Request) -> web.Response:
        """``GET /v1/runs/{uid}/why?step=`` → :class:`Why`."""
        uid, step = await self._uid(request), _step(request)
        state = self._parts.given.machine.state
        return answer(await why_step(state, self._parts.views, uid, step))

    async def explain(self, request: web.Request) -> web.Response:
        """``GET /v1/runs/{uid}/explain?step=`` → :class:`Explanation`."""
        uid, step = await self._uid(request), _step(request)
        given = self._parts.given
        state, now_s = given.machine.state, given.clock()
        return answer(await explain_step(state, self._parts.views, uid, step, now_s))

    async def receipt(self, request: web.Request) -> web.Response:
        """``GET /v1/runs/{uid}/receipt`` → :class:`Receipt`."""
        return answer(await self._parts.views.receipt(await self._uid(request)))

    async def _uid(self, request: web.Request) -> str:
        return await self._parts.views.resolve(request.match_info["uid"])

    async def _unended(self, request: web.Request) -> str:
        uid = await self._uid(request)
        status = await self._parts.views.status(uid)
        if status.phase in OVER:
            raise ConflictError(
                f"run {uid} is {status.phase}: there is nothing to change any more",
                where=f"runs/{uid}",
                remedy="submit it again; what is published is not run again",
            )
        return uid


def _step(request: web.Request) -> str:
    step = request.query.get("step", "")
    if not step:
        raise NotFoundError("which step?", where="?step=", remedy="add ?step=NAME")
    return step


def _read(path: str, reader: Any, text: str) -> Any:
    try:
        return reader(text)
    except (ValueError, ArithmeticError) as e:
        raise SpecError([Problem(path, f"{text!r} cannot be read: {e}")]) from e
