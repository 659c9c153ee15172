"""HTTP handlers with OpenAI's paths: files, batches and models, below ``/openai/v1``."""

from typing import TypeVar

import msgspec
from aiohttp import web

from flowmesh_api.openai.batches import CreateBatchBody, PlanBatchBody
from flowmesh_api.openai.files import FileDeleted, FileObject
from flowmesh_api.v1 import operations
from flowmesh_control.api.authorization import AuthorizedRequest, Route, limited, project_route
from flowmesh_control.api.content_sender import ContentSender
from flowmesh_control.api.openai_upload import UploadLimits, receive_file
from flowmesh_control.api.request_body import body_of
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import NamespaceLabels, Verb
from flowmesh_control.openai.batches import BatchService
from flowmesh_control.openai.files import UploadedFiles, file_object
from flowmesh_control.openai.output_files import OutputFiles
from flowmesh_control.openai.quotes import BatchQuotes
from flowmesh_control.openai.status import ENDED, BatchStatuses
from flowmesh_control.queries.downloads import Download
from flowmesh_control.quotas.rates import OpenLimit, RequestRate
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_core.decoding import Decoder, decode
from flowmesh_core.openai.errors import OpenAiError, invalid_value

_Body = TypeVar("_Body")
_body_decoder = msgspec.json.Decoder(CreateBatchBody)
_plan_decoder = msgspec.json.Decoder(PlanBatchBody)
_LIMIT, _LIMIT_MAX, _LIMIT_DIGITS = 20, 100, 9
_JSON_LINES = "application/jsonl"
_MODEL_PATTERN = "/openai/v1/models/{id:.+}"
"""Names of models may have slashes."""


class OpenAiHandlers:
    """Handlers of OpenAI's Batch API."""

    def __init__(
        self,
        *,
        files: UploadedFiles,
        batches: BatchService,
        statuses: BatchStatuses,
        outputs: OutputFiles,
        quotes: BatchQuotes,
        uploads: UploadLimits,
        sender: ContentSender,
        policies: CachePolicyStore,
        labels: NamespaceLabels,
    ) -> None:
        """Keeps the services that the handlers use.

        Args:
            files: that users uploaded.
            batches: creates and cancels.
            statuses: describes batches.
            outputs: the files that batches wrote.
            quotes: plans batches.
            uploads: bounds what is uploaded.
            sender: sends the content of files.
            policies: give the scopes of a namespace.
            labels: of namespaces.
        """
        self._files = files
        self._batches = batches
        self._statuses = statuses
        self._outputs = outputs
        self._quotes = quotes
        self._uploads = uploads
        self._sender = sender
        self._policies = policies
        self._labels = labels

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [
            limited(
                project_route(operations.UPLOAD_FILE, self.upload, Verb.CREATE),
                open_limit=OpenLimit.UPLOADS,
            ),
            project_route(operations.LIST_FILES, self.list_files, Verb.LIST),
            project_route(operations.GET_FILE, self.file, Verb.GET),
            project_route(
                operations.GET_FILE_CONTENT,
                self.content,
                Verb.GET,
                logging=Logging.DOWNLOAD,
            ),
            project_route(operations.DELETE_FILE, self.delete_file, Verb.DELETE),
            limited(
                project_route(operations.CREATE_BATCH, self.create_batch, Verb.CREATE),
                rate=RequestRate.SUBMISSIONS,
            ),
            limited(
                project_route(operations.PLAN_BATCH, self.plan_batch, Verb.CREATE),
                rate=RequestRate.PLANS,
            ),
            project_route(operations.LIST_BATCHES, self.list_batches, Verb.LIST),
            project_route(operations.GET_BATCH, self.batch, Verb.GET),
            project_route(operations.CANCEL_BATCH, self.cancel_batch, Verb.UPDATE),
            project_route(operations.LIST_MODELS, self.list_models, Verb.LIST),
            project_route(operations.GET_MODEL, self.model, Verb.GET, pattern=_MODEL_PATTERN),
        ]

    async def upload(self, call: AuthorizedRequest) -> web.Response:
        """``POST /openai/v1/files`` (a form: ``purpose``, ``file``) → :class:`FileObject`."""
        scope = self._scope(call)
        received = await receive_file(call, self._uploads, scope)
        record = await self._files.create(call.namespace, scope, *received)
        call.note(record.id)
        return json_response(file_object(record))

    async def list_files(self, call: AuthorizedRequest) -> web.Response:
        """``GET /openai/v1/files?after=&limit=`` → :class:`FileList`."""
        return json_response(await self._files.page(call.namespace, *_page(call.request)))

    async def file(self, call: AuthorizedRequest) -> web.Response:
        """``GET /openai/v1/files/{id}`` → :class:`FileObject`."""
        return json_response(await self._file(call))

    async def content(self, call: AuthorizedRequest) -> web.StreamResponse:
        """``GET /openai/v1/files/{id}/content`` → the file's bytes."""
        name = call.request.match_info["id"]
        pieces = await self._outputs.content(call.namespace, name)
        return await self._sender.send(call, Download(_JSON_LINES, pieces))

    async def delete_file(self, call: AuthorizedRequest) -> web.Response:
        """``DELETE /openai/v1/files/{id}`` → :class:`FileDeleted`."""
        name = call.request.match_info["id"]
        await self._files.delete(call.namespace, name)
        return json_response(FileDeleted(name))

    async def create_batch(self, call: AuthorizedRequest) -> web.Response:
        """``POST /openai/v1/batches`` :class:`CreateBatchBody` → :class:`BatchObject`."""
        body = _decoded(_body_decoder, await body_of(call.request))
        labels, scope = self._labels(call.namespace), self._scope(call)
        batch = await self._batches.create(call.namespace, labels, scope, body)
        call.note(batch.id)
        return json_response(await self._statuses.describe(batch))

    async def plan_batch(self, call: AuthorizedRequest) -> web.Response:
        """``POST /openai/v1/batches/plan`` :class:`PlanBatchBody` → :class:`BatchPlan`."""
        body = _decoded(_plan_decoder, await body_of(call.request))
        labels, scope = self._labels(call.namespace), self._scope(call)
        return json_response(await self._quotes.plan(call.namespace, labels, scope, body))

    async def list_batches(self, call: AuthorizedRequest) -> web.Response:
        """``GET /openai/v1/batches?after=&limit=`` → :class:`BatchList`."""
        return json_response(await self._statuses.page(call.namespace, *_page(call.request)))

    async def batch(self, call: AuthorizedRequest) -> web.Response:
        """``GET /openai/v1/batches/{id}`` → :class:`BatchObject`."""
        record = await self._batches.batches.read(call.namespace, call.request.match_info["id"])
        return json_response(await self._statuses.describe(record))

    async def cancel_batch(self, call: AuthorizedRequest) -> web.Response:
        """``POST /openai/v1/batches/{id}/cancel`` → :class:`BatchObject`."""
        record = await self._batches.batches.read(call.namespace, call.request.match_info["id"])
        shown = await self._statuses.describe(record)
        if shown.status in ENDED:
            raise OpenAiError(
                f"Cannot cancel a batch with status '{shown.status}'.", code="invalid_status"
            )
        record = await self._batches.cancel(record)
        return json_response(await self._statuses.describe(record))

    async def list_models(self, call: AuthorizedRequest) -> web.Response:
        """``GET /openai/v1/models`` → :class:`ModelList`."""
        return json_response(self._batches.models.all())

    async def model(self, call: AuthorizedRequest) -> web.Response:
        """``GET /openai/v1/models/{id}`` → :class:`ModelObject`."""
        return json_response(self._batches.models.one(call.request.match_info["id"]))

    async def _file(self, call: AuthorizedRequest) -> FileObject:
        async with self._sender.place(call):  # the size of an output is known once it is composed
            return await self._outputs.file(call.namespace, call.request.match_info["id"])

    def _scope(self, call: AuthorizedRequest) -> str:
        labels = dict(self._labels(call.namespace))
        return self._policies.scopes(call.namespace, labels).private


def _decoded(decoder: Decoder[_Body], body: bytes) -> _Body:
    try:
        return decode(decoder, body)
    except msgspec.DecodeError as e:
        raise OpenAiError(f"The body cannot be read: {e}", code="invalid_body") from e


def _page(request: web.Request) -> tuple[str, int]:
    given = request.query.get("limit") or str(_LIMIT)
    if not given.isdecimal() or len(given) > _LIMIT_DIGITS or not int(given):
        raise invalid_value("limit", "expected an integer of at least 1.")
    return request.query.get("after", ""), min(int(given), _LIMIT_MAX)
