"""The routes of the blob service."""

from typing import TypeVar

import msgspec
from aiohttp import web

from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.responses import errors_as_json, json_response
from flowmesh_control.blob_service.grants import TokenGrants, require_readable, require_writable
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.attempt_grants import AttemptGrant
from flowmesh_core.protocol.blob_service import (
    SINGLE_PUT_BYTES_MAX,
    URLS_MAX,
    AbortRequest,
    BlobRequest,
    CompleteRequest,
    CopyResponse,
    ExistingResponse,
    PartsRequest,
    PutRequest,
    SignedUrls,
    UploadResponse,
    UrlBatch,
    UrlRequest,
)
from flowmesh_core.units import Digest
from flowmesh_store.s3.signing_bucket import SigningBucket
from flowmesh_store.s3.uploads import PARTS_MAX, part_bytes

BODY_BYTES_MAX = 1 << 20
"""A request for 256 URLs, or one with the etags of 10,000 parts, is smaller."""
OBJECT_BYTES_MAX = 5 << 40
_Body = TypeVar("_Body")


class BlobHandlers:
    """Handles the requests of workers."""

    def __init__(self, grants: TokenGrants, bucket: SigningBucket) -> None:
        self._grants = grants
        self._bucket = bucket

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes."""
        return [
            web.get("/healthz", self.healthy),
            web.get("/v1/probe", self.probe),
            web.post("/v1/urls", self.sign),
            web.post("/v1/existing", self.existing),
            web.post("/v1/copy", self.copy),
            web.post("/v1/discard", self.discard),
            web.post("/v1/uploads", self.begin_upload),
            web.post("/v1/uploads/parts", self.sign_parts),
            web.post("/v1/uploads/complete", self.complete_upload),
            web.post("/v1/uploads/abort", self.abort_upload),
        ]

    async def healthy(self, _: web.Request) -> web.Response:
        """``GET /healthz``: the process answers."""
        return json_response({})

    async def probe(self, _: web.Request) -> web.Response:
        """``GET /v1/probe``: gives a URL that reads the head of one object, without a token."""
        return json_response(SignedUrls((self._bucket.urls.probe(),)))

    async def sign(self, request: web.Request) -> web.Response:
        """``POST /v1/urls``: signs URLs; refuses all where the token does not allow one."""
        grant = self._grants.of(request)
        wanted = (await read_body(request, _urls, BODY_BYTES_MAX)).requests
        if len(wanted) > URLS_MAX:
            raise _invalid(f"{len(wanted)} URLs are too many", f"ask for at most {URLS_MAX}")
        return json_response(SignedUrls(tuple(self._url(grant, one) for one in wanted)))

    async def existing(self, request: web.Request) -> web.Response:
        """``POST /v1/existing``: says whether a blob is stored, else gives a URL to put it."""
        grant = self._writing(request)
        body = await self._put_request(request)
        scope = grant.write_scope
        place = await self._bucket.stored.find(scope, body.digest, body.size_bytes)
        if place is None:
            return json_response(ExistingResponse(True))
        _require_size(body.size_bytes, SINGLE_PUT_BYTES_MAX)
        url = self._bucket.urls.put(scope, body.digest, body.size_bytes, place.etag)
        return json_response(ExistingResponse(False, url, place.etag))

    async def copy(self, request: web.Request) -> web.Response:
        """``POST /v1/copy``: copies a blob into the write scope."""
        grant = self._writing(request)
        body = await read_body(request, _blob, BODY_BYTES_MAX)
        require_readable(grant, body.scope)
        copied = await self._bucket.stored.copy(body.scope, grant.write_scope, body.digest)
        return json_response(CopyResponse(copied))

    async def discard(self, request: web.Request) -> web.Response:
        """``POST /v1/discard``: reads a blob again, and empties it if it is corrupt."""
        grant = self._grants.of(request)
        body = await read_body(request, _blob, BODY_BYTES_MAX)
        require_readable(grant, body.scope)
        await self._bucket.stored.discard(body.scope, body.digest)
        return json_response({})

    async def begin_upload(self, request: web.Request) -> web.Response:
        """``POST /v1/uploads``: begins a multipart upload, unless the blob is stored."""
        scope = self._writing(request).write_scope
        body = await self._put_request(request)
        if await self._bucket.stored.find(scope, body.digest, body.size_bytes) is None:
            return json_response(UploadResponse(True))
        upload_id = await self._bucket.uploads.begin(scope, body.digest)
        urls = self._part_urls(scope, body.digest, body.size_bytes, upload_id, 1)
        size = part_bytes(body.size_bytes)
        return json_response(UploadResponse(False, upload_id, size, urls))

    async def sign_parts(self, request: web.Request) -> web.Response:
        """``POST /v1/uploads/parts``: signs URLs of parts from a number on."""
        scope = self._writing(request).write_scope
        body = await read_body(request, _parts, BODY_BYTES_MAX)
        _require_size(body.size_bytes, OBJECT_BYTES_MAX)
        if not 1 <= body.first <= PARTS_MAX:
            raise _invalid(f"there is no part {body.first}", f"parts are 1 to {PARTS_MAX}")
        urls = self._part_urls(scope, body.digest, body.size_bytes, body.upload_id, body.first)
        return json_response(SignedUrls(urls))

    async def complete_upload(self, request: web.Request) -> web.Response:
        """``POST /v1/uploads/complete``: makes the blob, unless another one took its place."""
        scope = self._writing(request).write_scope
        body = await read_body(request, _complete, BODY_BYTES_MAX)
        stored, uploads = self._bucket.stored, self._bucket.uploads
        place = await stored.vacancy(scope, body.digest)
        if place is None:
            await uploads.abort(scope, body.digest, body.upload_id)
        else:
            await uploads.complete(scope, body.digest, body.upload_id, body.etags, place)
        return json_response({})

    async def abort_upload(self, request: web.Request) -> web.Response:
        """``POST /v1/uploads/abort``: gives an upload up."""
        scope = self._writing(request).write_scope
        body = await read_body(request, _abort, BODY_BYTES_MAX)
        await self._bucket.uploads.abort(scope, body.digest, body.upload_id)
        return json_response({})

    def _url(self, grant: AttemptGrant, wanted: UrlRequest) -> str:
        if wanted.method == "PUT":
            require_writable(grant, wanted.scope)
            _require_size(wanted.size_bytes, SINGLE_PUT_BYTES_MAX)
            return self._bucket.urls.put(wanted.scope, wanted.digest, wanted.size_bytes)
        require_readable(grant, wanted.scope)
        return self._bucket.urls.read(wanted.method, wanted.scope, wanted.digest)

    def _writing(self, request: web.Request) -> AttemptGrant:
        grant = self._grants.of(request)
        require_writable(grant, grant.write_scope)
        return grant

    async def _put_request(self, request: web.Request) -> PutRequest:
        body = await read_body(request, _put, BODY_BYTES_MAX)
        _require_size(body.size_bytes, OBJECT_BYTES_MAX)
        return body

    def _part_urls(
        self, scope: str, digest: Digest, size_bytes: int, upload_id: str, first: int
    ) -> tuple[str, ...]:
        step, sign = part_bytes(size_bytes), self._bucket.urls.part
        numbers = range(first, min(first + URLS_MAX, -(-size_bytes // step) + 1))
        sizes = {n: min(step, size_bytes - (n - 1) * step) for n in numbers}
        return tuple(sign(scope, digest, upload_id, n, size) for n, size in sizes.items())


def build_blob_service(grants: TokenGrants, bucket: SigningBucket) -> web.Application:
    """Returns the application of the blob service."""
    app = web.Application(middlewares=[errors_as_json], client_max_size=BODY_BYTES_MAX)
    app.add_routes(BlobHandlers(grants, bucket).routes())
    return app


def _require_size(size_bytes: int, size_bytes_max: int) -> None:
    if not 0 <= size_bytes <= size_bytes_max:
        raise _invalid(
            f"{size_bytes} is not the size of a blob that fits into one request",
            f"put at most {size_bytes_max} bytes; larger blobs go in parts",
        )


def _invalid(message: str, remedy: str) -> FlowMeshError:
    return FlowMeshError(message, where="body", remedy=remedy)


_urls = msgspec.json.Decoder(UrlBatch)
_blob = msgspec.json.Decoder(BlobRequest)
_put = msgspec.json.Decoder(PutRequest)
_parts = msgspec.json.Decoder(PartsRequest)
_complete = msgspec.json.Decoder(CompleteRequest)
_abort = msgspec.json.Decoder(AbortRequest)
