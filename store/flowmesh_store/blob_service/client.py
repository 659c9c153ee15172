"""The client of the blob service: one method a route, and URLs in batches.

Requests for URLs that are made while another one of the same token is under way go together in the
next, so that the many blobs of an attempt cost few requests.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec

from flowmesh_api.v1.errors import ErrorDocument
from flowmesh_core.decoding import decode
from flowmesh_core.errors import StoreError, StoreFullError, StoreUnavailableError
from flowmesh_core.protocol.blob_service import (
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
from flowmesh_store.trusted_authority import TrustedAuthority

_HTTP_OK = 200
_HTTP_TOO_MANY = 429
_HTTP_SERVER_ERROR = 500
_HTTP_FULL = 507
_Response = TypeVar("_Response")
_Waiting = tuple[UrlRequest, "asyncio.Future[str]"]


class BlobServiceClient:
    """Sends the requests of one worker."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, authority: Path | None = None
    ) -> None:
        """Keeps the arguments.

        Args:
            http: sends.
            url: ``https://host:port`` of the service.
            authority: PEM certificates to trust; None for the system's. It is read anew when it
                has changed.
        """
        self.url = url.rstrip("/")
        self._http = http
        self._authority = TrustedAuthority(authority)
        self._waiting: dict[str, list[_Waiting]] = {}
        self._senders: set[asyncio.Task[None]] = set()

    async def presigned_url(self, token: str, request: UrlRequest) -> str:
        """Returns a URL; raises as :meth:`copy`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        waiting = self._waiting.get(token)
        if waiting is None:
            waiting = self._waiting[token] = []
            task = loop.create_task(self._send(token, waiting))
            self._senders.add(task)
            task.add_done_callback(self._senders.discard)
        waiting.append((request, future))
        return await future

    async def probe_url(self) -> str:
        """Returns a URL for HEAD that shows whether the bucket takes URLs of this service.

        It needs no token; raises as :meth:`copy`.
        """
        urls = (await self._request("GET", "probe", b"", SignedUrls)).urls
        return urls[0]

    async def existing(self, token: str, digest: Digest, size_bytes: int) -> ExistingResponse:
        """Asks what lies in the place of a blob; raises as :meth:`copy`."""
        return await self._post(token, "existing", PutRequest(digest, size_bytes), ExistingResponse)

    async def copy(self, token: str, scope: str, digest: Digest) -> bool:
        """Copies a blob of a scope to the token's write scope; returns whether that scope has it.

        Raises:
            StoreError: the service refuses.
            StoreFullError, StoreUnavailableError: as the service says, or it did not answer.
        """
        return (await self._post(token, "copy", BlobRequest(scope, digest), CopyResponse)).found

    async def discard(self, token: str, scope: str, digest: Digest) -> None:
        """Asks the service to discard a blob if it is corrupt; raises as :meth:`copy`."""
        await self._post(token, "discard", BlobRequest(scope, digest), dict)

    async def begin_upload(self, token: str, digest: Digest, size_bytes: int) -> UploadResponse:
        """Begins a multipart upload unless the blob is stored; raises as :meth:`copy`."""
        return await self._post(token, "uploads", PutRequest(digest, size_bytes), UploadResponse)

    async def part_urls(
        self, token: str, digest: Digest, size_bytes: int, upload_id: str, first: int
    ) -> tuple[str, ...]:
        """Returns URLs of parts from a number on; raises as :meth:`copy`."""
        request = PartsRequest(digest, size_bytes, upload_id, first)
        return (await self._post(token, "uploads/parts", request, SignedUrls)).urls

    async def complete_upload(
        self, token: str, digest: Digest, upload_id: str, etags: tuple[str, ...]
    ) -> None:
        """Makes the blob of its parts; raises as :meth:`copy`."""
        request = CompleteRequest(digest, upload_id, etags)
        await self._post(token, "uploads/complete", request, dict)

    async def abort_upload(self, token: str, digest: Digest, upload_id: str) -> None:
        """Gives an upload up; raises as :meth:`copy`."""
        await self._post(token, "uploads/abort", AbortRequest(digest, upload_id), dict)

    async def _send(self, token: str, waiting: list[_Waiting]) -> None:
        """Asks for the URLs that wait, until none does."""
        while waiting:
            batch = waiting[:URLS_MAX]
            del waiting[:URLS_MAX]
            body = UrlBatch(tuple(request for request, _ in batch))
            try:
                urls = (await self._post(token, "urls", body, SignedUrls)).urls
                for (_, future), url in zip(batch, urls, strict=True):
                    _resolve(future, lambda f, url=url: f.set_result(url))  # type: ignore[misc]
            except Exception as error:  # everyone who waits for these URLs gets it
                for _, future in batch:
                    _resolve(future, lambda f, e=error: f.set_exception(e))  # type: ignore[misc]
        del self._waiting[token]

    async def _post(self, token: str, path: str, body: Any, answer: type[_Response]) -> _Response:
        return await self._request("POST", path, msgspec.json.encode(body), answer, token)

    async def _request(
        self, method: str, path: str, body: bytes, answer: type[_Response], token: str = ""
    ) -> _Response:
        where = f"{self.url}/v1/{path}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body:
            headers["Content-Type"] = "application/json"
        try:
            async with self._http.request(
                method, where, data=body or None, headers=headers, ssl=self._authority.context()
            ) as response:
                data = await response.read()
        except aiohttp.ClientConnectorCertificateError as error:
            raise StoreUnavailableError(
                f"the blob service's certificate is not trusted: {error}",
                where=self.url,
                remedy="its Secret must name this host and be signed by --gateway-ca; one that the"
                " chart made before: delete flowmesh-gateway-tls and upgrade",
            ) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise StoreUnavailableError(
                f"the blob service did not answer: {error!r}",
                where=self.url,
                remedy="see the pods of the Deployment flowmesh-blobs, then try again",
            ) from error
        if response.status != _HTTP_OK:
            raise _refusal(response.status, data, where)
        try:
            return decode(msgspec.json.Decoder(answer), data)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"the response cannot be read: {error}",
                where=where,
                remedy="use workers and blob service of one release",
            ) from error


def _resolve(future: "asyncio.Future[str]", act: Callable[["asyncio.Future[str]"], None]) -> None:
    if not future.done():  # else who waited was cancelled
        act(future)


def _refusal(status: int, data: bytes, where: str) -> StoreError:
    try:
        details = decode(_error_document, data).error
        message, remedy = details.message, details.remedy
    except msgspec.DecodeError:
        message, remedy = f"HTTP status {status}", "see the log of the Deployment flowmesh-blobs"
    if status == _HTTP_FULL:
        return StoreFullError(message, where=where, remedy=remedy)
    if status >= _HTTP_SERVER_ERROR or status == _HTTP_TOO_MANY:
        return StoreUnavailableError(message, where=where, remedy=remedy)
    return StoreError(message, where=where, remedy=remedy)


_error_document = msgspec.json.Decoder(ErrorDocument)
