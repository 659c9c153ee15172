"""Content in and out: uploads of rows and directories, downloads of outputs."""

import asyncio
import tarfile
import tempfile
import unicodedata
from pathlib import Path

from aiohttp import web

from flowmesh_api.v1.runs import Uploaded
from flowmesh_control.api.authorization import AuthorizedRequest, Route, of_namespace, of_run
from flowmesh_control.api.connections import while_connected
from flowmesh_control.api.ports import RunReader
from flowmesh_control.api.responses import answer
from flowmesh_control.auth.users import NamespaceLabels, Verb
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.importer.upload_body import receive
from flowmesh_control.queries.downloads import Download, download_of
from flowmesh_control.records.cache_policies import CachePolicyStore
from flowmesh_control.runs.uploads import StoredContent, UploadStore
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing import ScopePlan
from flowmesh_store.blobs import Blobs
from flowmesh_store.spool import SpoolWriter
from flowmesh_store.unpacking import TreeLimits, open_tree, unpack

ROWS_BYTES_MAX = 2 << 30
_CONTROL = frozenset({"Cc", "Cs"})


class DataHandlers:
    """The handlers of uploads and outputs."""

    def __init__(
        self,
        *,
        runs: RunReader,
        uploads: UploadStore,
        blobs: Blobs,
        policies: CachePolicyStore,
        labels: NamespaceLabels,
        upload_bytes_max: int,
    ) -> None:
        """Stores by ``uploads`` and reads from ``blobs``.

        Args:
            runs: know their outputs.
            uploads: stores content and knows references.
            blobs: of the store.
            policies: say what a namespace may read.
            labels: of namespaces.
            upload_bytes_max: of a directory.
        """
        self._runs = runs
        self._uploads = uploads
        self._blobs = blobs
        self._policies = policies
        self._labels = labels
        self._upload_bytes_max = upload_bytes_max

    def routes(self) -> list[Route]:
        """Every route of this class."""
        return [
            of_namespace("POST", "/v1/datasets", self.put_dataset, Verb.CREATE),
            of_namespace("POST", "/v1/trees", self.put_tree, Verb.CREATE),
            of_run("GET", "/v1/runs/{uid}/outputs", self.outputs),
            of_run("GET", "/v1/runs/{uid}/outputs/{name}", self.output),
            of_namespace("GET", "/v1/content", self.content, Verb.GET),
        ]

    async def put_dataset(self, visit: AuthorizedRequest) -> web.Response:
        """``POST /v1/datasets?namespace=&name=FILE`` → :class:`Uploaded`.

        The body is a file of rows; the ending of ``name`` says which kind, JSON Lines by default.
        """
        scope, request = self._scopes(visit).private, visit.request
        name = _file_name(request.query.get("name") or "rows.jsonl")
        received = await receive(
            request.content,
            self._blobs.spool(),
            announced_bytes=request.content_length or 0,
            limit_bytes=ROWS_BYTES_MAX,
            where=name,
        )
        upload = self._uploads.put_upload(name, received, scope)
        stored = await while_connected(request, upload)
        return answer(_uploaded(stored), status=201)

    async def put_tree(self, visit: AuthorizedRequest) -> web.Response:
        """``POST /v1/trees?namespace=&kind=model`` → :class:`Uploaded`.

        The body is a tar file of the directory's content.
        """
        scope, request = self._scopes(visit).private, visit.request
        kind = request.query.get("kind", "model")
        if kind not in ("model", "adapter"):
            raise FlowMeshError(f"no tree is a {kind!r}", where="?kind=", remedy="model or adapter")
        limit = self._upload_bytes_max
        with tempfile.TemporaryDirectory(prefix="flowmesh-upload-") as scratch:
            received = await receive(
                request.content,
                SpoolWriter(Path(scratch)),
                announced_bytes=request.content_length or 0,
                limit_bytes=limit,
                where="body",
            )
            directory = Path(scratch, "tree")
            await asyncio.to_thread(_unpack, received.path, directory)
            upload = self._uploads.put_directory(kind, directory, scope)
            stored = await while_connected(request, upload)
        return answer(_uploaded(stored), status=201)

    async def outputs(self, visit: AuthorizedRequest) -> web.Response:
        """``GET /v1/runs/{uid}/outputs`` → by name: kind, reference, digest, rows, value."""
        await self._runs.outputs(visit.uid)
        return answer((await self._runs.status(visit.uid)).outputs)

    async def output(self, visit: AuthorizedRequest) -> web.StreamResponse:
        """``GET /v1/runs/{uid}/outputs/{name}`` → rows as JSON Lines, a tar, JSON, or bytes."""
        uid = visit.uid
        outputs = await self._runs.outputs(uid)
        name = visit.request.match_info["name"]
        if name not in outputs:
            raise NotFoundError(
                f"run {uid} has no output {name!r}",
                where="outputs",
                remedy=f"it has {', '.join(outputs) or 'none'}",
            )
        if not outputs[name]:
            raise ConflictError(
                f"output {name!r} is empty: the step that gives it was skipped or did not end well",
                where=f"runs/{uid}",
            )
        download = download_of(self._blobs, outputs[name])
        return await self._send(visit.request, download)

    async def content(self, visit: AuthorizedRequest) -> web.StreamResponse:
        """``GET /v1/content?reference=&namespace=`` → what it refers to, as an output is.

        ``?kind=`` may say what is expected; the reference says what it is.
        """
        query, scopes = visit.request.query, self._scopes(visit)
        reference = query.get("reference", "")
        issued_as = self._uploads.verified(reference, scopes).kind
        if query.get("kind", issued_as) != issued_as:
            raise FlowMeshError(
                f"the reference is of kind {issued_as}",
                where="?kind=",
                remedy=f"leave it out, or write {issued_as}",
            )
        artifact = await self._uploads.load(issued_as, reference, scopes)
        download = download_of(self._blobs, (artifact,))
        return await self._send(visit.request, download)

    async def _send(self, request: web.Request, download: Download) -> web.StreamResponse:
        first = await anext(download.pieces, b"")
        response = web.StreamResponse(headers={"Content-Type": download.media_type})
        await response.prepare(request)
        await response.write(first)
        async for piece in download.pieces:
            await response.write(piece)
        await response.write_eof()
        return response

    def _scopes(self, visit: AuthorizedRequest) -> ScopePlan:
        labels = dict(self._labels(visit.namespace))
        return self._policies.scopes(visit.namespace, labels)


def _file_name(name: str) -> str:
    """The name of an upload, which is handed to a process and shown in errors."""
    if any(unicodedata.category(c) in _CONTROL for c in name):
        raise FlowMeshError(
            f"{name[:80]!r} is not a file name: it holds control characters",
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
    except tarfile.TarError as e:
        raise FlowMeshError(
            f"the body is no tar file of a tree: {e}",
            where="body",
            remedy="send `tar -C DIRECTORY -chf - .`, which follows links",
        ) from e
