"""HTTP handlers of content: uploads of rows and directories, downloads of outputs."""

import asyncio
import logging
import tarfile
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.operation import ARROW_STREAM
from flowmesh_api.v1.runs import Uploaded
from flowmesh_control.api.authorization import (
    AuthorizedRequest,
    Route,
    limited,
    namespace_route,
    run_route,
)
from flowmesh_control.api.connections import while_connected
from flowmesh_control.api.content_sender import ContentSender
from flowmesh_control.api.ports import RunReader
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import accepts, flag, json_response
from flowmesh_control.auth.users import NamespaceLabels, Verb
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.importer.upload_body import receive
from flowmesh_control.queries.downloads import ALL_ROWS, Download, download_of
from flowmesh_control.queries.partial_outputs import PartialOutputs
from flowmesh_control.queries.step_outputs import StepOutputs
from flowmesh_control.quotas.rates import OpenLimit
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.runs.uploads import StoredContent, UploadStore
from flowmesh_core.errors import (
    BlobCorruptError,
    FlowMeshError,
    InvalidReferenceError,
    LostBlobError,
    RevokedContentError,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.sharing import ScopePlan
from flowmesh_store.blobs import Blobs, BlobViews
from flowmesh_store.model_files import require_data_only
from flowmesh_store.spool import SpoolWriter
from flowmesh_store.unpacking import TreeLimits, open_tree, unpack

log = logging.getLogger("flowmesh.control.api")

ROWS_BYTES_MAX = 2 << 30
_HEAD_DIGITS = 15
_CONTROL = frozenset({"Cc", "Cs"})


class DataHandlers:
    """Handlers of uploads and outputs."""

    def __init__(
        self,
        *,
        runs: RunReader,
        partial_outputs: PartialOutputs,
        step_outputs: StepOutputs,
        uploads: UploadStore,
        store: BlobViews,
        policies: CachePolicyStore,
        labels: NamespaceLabels,
        uploaded: UploadedBytes,
        sender: ContentSender,
        upload_bytes_max: int,
    ) -> None:
        """Keeps the services that the handlers use.

        Args:
            runs: reads runs and their outputs.
            partial_outputs: reads outputs as far as they are published.
            step_outputs: reads what steps have made.
            uploads: stores content and verifies references.
            store: has the blobs.
            policies: give the scopes that a namespace may read.
            labels: of namespaces.
            uploaded: bounds what namespaces upload.
            sender: sends downloads.
            upload_bytes_max: the largest upload of a directory.
        """
        self._runs = runs
        self._partial_outputs = partial_outputs
        self._step_outputs = step_outputs
        self._uploads = uploads
        self._store = store
        self._policies = policies
        self._labels = labels
        self._uploaded = uploaded
        self._sender = sender
        self._upload_bytes_max = upload_bytes_max

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        return [
            *(
                limited(
                    namespace_route(operation, handling, Verb.CREATE),
                    open_limit=OpenLimit.UPLOADS,
                )
                for operation, handling in (
                    (operations.UPLOAD_DATASET, self.put_dataset),
                    (operations.UPLOAD_TREE, self.put_tree),
                )
            ),
            run_route(operations.LIST_OUTPUTS, self.outputs),
            run_route(operations.GET_OUTPUT, self.output, logging=Logging.DOWNLOAD),
            namespace_route(
                operations.GET_CONTENT, self.content, Verb.GET, logging=Logging.DOWNLOAD
            ),
        ]

    async def put_dataset(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/datasets?namespace=&name=FILE`` → :class:`Uploaded`.

        The body is a file of rows; the suffix of ``name`` gives its format, by default JSON Lines.
        """
        scope, request = self._scopes(call).private, call.request
        announced = request.content_length or 0
        meter = await self._uploaded.begin(call.namespace, announced)
        name = _file_name(request.query.get("name") or "rows.jsonl")
        received = await receive(
            request.content,
            self._store.view(write=scope, read=()).spool(),
            announced_bytes=announced,
            limit_bytes=ROWS_BYTES_MAX,
            where=name,
            count=meter.count,
        )
        upload = self._uploads.put_upload(name, received, scope)
        stored = await while_connected(request, upload)
        call.note(stored.artifact.digest)
        return json_response(_uploaded(stored), status=201)

    async def put_tree(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/trees?namespace=&kind=model`` → :class:`Uploaded`.

        The body is a tar file of the directory's content: safetensors, JSON and tokenizer files.
        """
        scope, request = self._scopes(call).private, call.request
        kind = request.query.get("kind", "model")
        if kind not in ("model", "adapter"):
            raise FlowMeshError(
                f"{kind!r} is not a kind of directory: expected model or adapter", where="?kind="
            )
        limit, announced = self._upload_bytes_max, request.content_length or 0
        meter = await self._uploaded.begin(call.namespace, announced)
        with tempfile.TemporaryDirectory(prefix="flowmesh-upload-") as scratch:
            received = await receive(
                request.content,
                SpoolWriter(Path(scratch)),
                announced_bytes=announced,
                limit_bytes=limit,
                where="body",
                count=meter.count,
            )
            directory = Path(scratch, "tree")
            await asyncio.to_thread(_unpack, received.path, directory)
            upload = self._uploads.put_directory(kind, directory, scope)
            stored = await while_connected(request, upload)
        call.note(stored.artifact.digest)
        return json_response(_uploaded(stored), status=201)

    async def outputs(self, call: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/outputs`` → by name: kind, reference, digest, rows, value."""
        await self._runs.outputs(call.uid)
        return json_response((await self._runs.status(call.uid)).outputs)

    async def output(self, call: AuthorizedRequest) -> web.StreamResponse:
        """``GET /v1/runs/{uid}/outputs/{name}`` → rows as JSON Lines, a tar, JSON, or bytes.

        Rows are an Arrow stream where ``Accept`` names it, and only the first with ``?head=``. With
        ``?partial=1`` it has what is published so far, also of a run that has not ended. ``name``
        may be ``STEP.PORT``, once that step has ended.
        """
        name = call.request.match_info["name"]
        try:
            return await self._output(call, name)
        except LostBlobError as e:
            makers = await self._step_outputs.makers(call.uid, name)
            raise _lost(repr(name), f"runs/{call.uid}", e, makers) from e

    async def _output(self, call: AuthorizedRequest, name: str) -> web.StreamResponse:
        uid = call.uid
        if "." in name:  # no output of a workflow has such a name
            return await self._of_step(call, name)
        if flag(call.request, "partial"):
            return await self._partial(call)
        outputs = await self._runs.outputs(uid)
        if name not in outputs:
            raise NotFoundError(
                f"run {uid} has no output {name!r}",
                where="outputs",
                remedy=f"it has {', '.join(outputs) or 'none'}",
            )
        if not outputs[name]:
            shown = (await self._runs.status(uid)).outputs.get(name)
            if shown is not None and shown.get("revoked"):
                raise RevokedContentError(f"output {name!r} was revoked", where=f"runs/{uid}")
            raise ConflictError(
                f"output {name!r} is empty: its step was skipped or did not succeed",
                where=f"runs/{uid}",
            )
        scopes = await self._runs.output_scopes(uid)
        blobs = self._store.view(write=scopes[0], read=scopes)
        return await self._sender.send(call, _download(call, blobs, outputs[name]))

    async def _of_step(self, call: AuthorizedRequest, name: str) -> web.StreamResponse:
        made = await self._step_outputs.find(call.uid, name)
        try:
            await self._uploads.check_revoked(made.artifact, self._scopes(call))
        except InvalidReferenceError as e:
            raise RevokedContentError(f"{name!r} was revoked", where=f"runs/{call.uid}") from e
        blobs = await self._step_outputs.blobs(made)
        return await self._sender.send(call, _download(call, blobs, (made.artifact,)))

    async def _partial(self, call: AuthorizedRequest) -> web.StreamResponse:
        name = call.request.match_info["name"]
        blobs, artifacts = await self._partial_outputs.artifacts(call.uid, name)
        return await self._sender.send(call, _download(call, blobs, artifacts))

    async def content(self, call: AuthorizedRequest) -> web.StreamResponse:
        """``GET /v1/content?reference=&namespace=`` → the content, in the form of an output.

        ``?kind=`` may state the expected kind; the kind in the reference must be the same.
        """
        query, scopes = call.request.query, self._scopes(call)
        reference = query.get("reference", "")
        issued_as = self._uploads.verified(reference, scopes).kind
        if query.get("kind", issued_as) != issued_as:
            raise FlowMeshError(
                f"the reference is of kind {issued_as}",
                where="?kind=",
                remedy=f"leave out ?kind=, or write {issued_as}",
            )
        artifact = await self._uploads.load(issued_as, reference, scopes)
        call.note(artifact.digest)
        blobs = self._store.view(write=scopes.private, read=scopes.readable)
        try:
            return await self._sender.send(call, _download(call, blobs, (artifact,)))
        except LostBlobError as e:
            raise _lost("the content", "reference", e) from e

    def _scopes(self, call: AuthorizedRequest) -> ScopePlan:
        labels = dict(self._labels(call.namespace))
        return self._policies.scopes(call.namespace, labels)


def _lost(what: str, where: str, error: LostBlobError, makers: Sequence[str] = ()) -> LostBlobError:
    """Returns the error for content that is lost, for users who know no blobs.

    Args:
        what: the content.
        where: it belongs.
        error: of the store, which names its file; logged.
        makers: the steps that make it; none where it may have been uploaded.
    """
    log.warning("%s: %s: %s", where, what, error)
    remedy = "upload it again, or run again the workflow that made it"
    if makers:
        steps = " and ".join(map(repr, makers))
        remedy = f"run the workflow again: step {steps} makes it anew, the rest is reused"
    damaged = isinstance(error, BlobCorruptError)
    state = "is damaged in the store" if damaged else "is no longer stored"
    return LostBlobError(f"{what} {state}", digest=error.digest, where=where, remedy=remedy)


def _download(call: AuthorizedRequest, blobs: Blobs, artifacts: Sequence[Artifact]) -> Download:
    as_arrow = accepts(call.request, ARROW_STREAM)
    return download_of(blobs, artifacts, rows_max=_rows_max(call), as_arrow=as_arrow)


def _rows_max(call: AuthorizedRequest) -> int:
    head = call.request.query.get("head")
    if head is None:
        return ALL_ROWS
    if not head.isdecimal() or len(head) > _HEAD_DIGITS or not int(head):
        raise FlowMeshError(
            f"{head!r} is not a number of rows: expected a whole number of 1 or more",
            where="?head=",
        )
    return int(head)


def _file_name(name: str) -> str:
    """Returns the name of an upload, which is an argument of a process and part of errors."""
    if any(unicodedata.category(c) in _CONTROL for c in name):
        raise FlowMeshError(
            f"{name[:80]!r} is not a file name: it contains control characters",
            where="?name=",
            remedy="write a name such as rows.jsonl",
        )
    return name


def _uploaded(stored: StoredContent) -> Uploaded:
    artifact = stored.artifact
    return Uploaded(
        reference=stored.reference,
        kind=artifact.kind,
        digest=artifact.digest,
        size_bytes=artifact.size_bytes,
        rows=artifact.rows,
        columns=stored.columns,
    )


def _unpack(archive: Path, directory: Path) -> None:
    try:
        with open_tree(archive) as tar:
            unpack(tar, directory, TreeLimits())
        archive.unlink()
        require_data_only(directory)
    except tarfile.TarError as e:
        raise FlowMeshError(
            f"the body is not a tar file of a directory: {e}",
            where="body",
            remedy="send `tar -C DIRECTORY -chf - .`, which follows links",
        ) from e
