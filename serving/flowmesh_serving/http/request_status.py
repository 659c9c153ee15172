"""``/v1/services/{namespace}/{name}/requests``: what requests do, and how they have ended.

A caller sees and cancels the requests of its own namespace only. No answer has a word of what was
asked or answered.
"""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import STAGE_QUEUED, StageProgress
from flowmesh_serving.calls.calls import Calls
from flowmesh_serving.errors import response_of, unknown_request
from flowmesh_serving.http.kubernetes_callers import KubernetesCallers
from flowmesh_serving.http.request_headers import caller_of
from flowmesh_serving.http.whole_response import json_response
from flowmesh_serving.requests.call_record import CallRecord, stage_records
from flowmesh_serving.requests.request_record import RequestRecord
from flowmesh_serving.requests.request_table import RequestTable
from flowmesh_serving.service_table import Caller, ServiceTable
from flowmesh_serving.stages.stage_questions import StageQuestions
from flowmesh_serving.stages.staged_requests import PendingRequest, StagedRequests

_WAITING, _RUNNING, _ENDED, _UNKNOWN = "waiting", "running", "ended", "unknown"
_OF_CALL = ("",)


class RequestStatusEndpoint:
    """The handlers of ``…/requests``."""

    def __init__(
        self,
        services: ServiceTable,
        users: KubernetesCallers,
        requests: RequestTable,
        calls: Calls,
        staged: StagedRequests,
        questions: StageQuestions,
    ) -> None:
        self._services = services
        self._users = users
        self._requests = requests
        self._calls = calls
        self._staged = staged
        self._questions = questions

    async def show_all(self, request: web.Request) -> web.Response:
        """Lists the caller's requests, the newest first, without asking hubs."""
        try:
            caller = await self._caller(request, "")
        except OpenAiError as error:
            return response_of(error)
        found = [self._shown(record) for record in self._requests.of(caller)]
        return json_response({"object": "list", "data": found})

    async def show(self, request: web.Request) -> web.Response:
        """Shows one request, with the state of its stages."""
        try:
            record = await self._record(request)
        except OpenAiError as error:
            return response_of(error)
        return json_response(await self._asked(record))

    async def cancel(self, request: web.Request) -> web.Response:
        """Cancels a request that has not ended, and shows it."""
        try:
            record = await self._record(request)
        except OpenAiError as error:
            return response_of(error)
        record.cancel()
        return json_response(self._shown(record))

    async def _record(self, request: web.Request) -> RequestRecord:
        request_id = request.match_info["id"]
        record = self._requests.find(await self._caller(request, request_id), request_id)
        if record is None:
            raise unknown_request(request_id)
        return record

    async def _caller(self, request: web.Request, request_id: str) -> Caller:
        service = f"{request.match_info['namespace']}/{request.match_info['name']}"
        caller = caller_of(request.headers, self._services)
        if caller is None:
            caller = await self._users.of_service(request, service)
        if caller.service.service != service:
            raise unknown_request(request_id)
        return caller

    async def _asked(self, record: RequestRecord) -> dict[str, Any]:
        """Returns a request as its hubs see it; a request may end meanwhile."""
        if (pending := self._staged.find(record.request_id)) is not None:
            names = tuple(pending.graph.stages)
            links = set(pending.links.values())
            found = await self._questions.ask(record.request_id, links, names)
            return self._shown(record, _stages(pending, found))
        call = self._calls.find(record.request_id)
        if call is None or call.replica is None:
            return self._shown(record)
        found = await self._questions.ask(record.request_id, [call.replica.link], _OF_CALL)
        at_worker = found.get("") if found else None
        is_queued = at_worker is not None and at_worker.state == STAGE_QUEUED
        return self._shown(record, is_queued=is_queued)

    def _shown(
        self,
        record: RequestRecord,
        stages: list[dict[str, str]] | None = None,
        *,
        is_queued: bool = False,
    ) -> dict[str, Any]:
        """Returns a request as it is now.

        Args:
            record: of the request.
            stages: as its hubs see them; None for a request without, or where none was asked.
            is_queued: whether it waits at a worker.
        """
        state = _ENDED if record.outcome else _RUNNING if self._is_sent(record) else _WAITING
        if state == _RUNNING and (is_queued or (stages and _all_wait(stages))):
            state = _WAITING
        shown: dict[str, Any] = {
            "id": record.request_id,
            "object": "service.request",
            "service": record.service,
            "path": record.path,
            "state": state,
            "outcome": record.outcome or None,
            "code": record.code,
            "release": record.release or self._release(record) or None,
            "created": round(record.created_s, 3),
            "ended": round(record.ended_s, 3) or None,
        }
        if stages is not None and state != _ENDED:
            shown["stages"] = stages
        if state == _ENDED and record.ended_by is None:  # else its calls are still being ended
            known = record.calls
            if not known and record.route is not None:
                known = stage_records(record.route, {})
            shown["calls"] = [_call(one) for one in known]
        return shown

    def _is_sent(self, record: RequestRecord) -> bool:
        """Returns whether a worker has it, or has answered it."""
        call = self._calls.find(record.request_id)
        return call is None or call.replica is not None or call.has_begun

    def _release(self, record: RequestRecord) -> str:
        pending = self._staged.find(record.request_id) or self._calls.find(record.request_id)
        return "" if pending is None else pending.release


def _call(one: CallRecord) -> dict[str, Any]:
    queue_s, compute_s = (None, None) if one.times is None else (round(s, 6) for s in one.times)
    return {
        "stage": one.stage or None,
        "replica": one.replica,
        "queue_s": queue_s,
        "compute_s": compute_s,
    }


def _stages(
    pending: PendingRequest, found: Mapping[str, StageProgress] | None
) -> list[dict[str, str]]:
    """Returns the state of each stage, in the graph's order."""
    if found is None:
        return [{"name": name, "state": _UNKNOWN} for name in pending.graph.stages]
    return [
        {"name": name, "state": found[name].state if name in found else _WAITING}
        for name in pending.graph.stages
    ]


def _all_wait(stages: list[dict[str, str]]) -> bool:
    return all(one["state"] in (_WAITING, STAGE_QUEUED) for one in stages)
