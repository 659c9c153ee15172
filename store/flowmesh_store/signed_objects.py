"""Requests with presigned URLs, and what a server's responses to them mean."""

import io
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from flowmesh_core.errors import StoreError, StoreFullError, StoreUnavailableError
from flowmesh_store.trusted_authority import TrustedAuthority

_FULL = ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull")
_HTTP_OK = 200
_HTTP_PARTIAL = 206
_HTTP_FORBIDDEN = 403
_HTTP_NOT_FOUND = 404
_HTTP_CONFLICTS = (409, 412)
_HTTP_NO_SUCH_RANGE = 416
_HTTP_FULL = 507
_HTTP_RETRIED = (408, 429)
_HTTP_SERVER_ERROR = 500
_REASON_CHARS = 300


class UrlRefusedError(StoreError):
    """The server does not accept a URL (any more)."""


class ObjectExistsError(StoreError):
    """The condition of a PUT does not hold: there is an object already, or not any more."""


class SignedObjects:
    """Sends requests with presigned URLs; errors name the object, never the signature."""

    def __init__(self, http: aiohttp.ClientSession, authority: Path | None = None) -> None:
        """Keeps the arguments.

        Args:
            http: sends.
            authority: PEM certificates to trust for the bucket's server; None for the system's.
        """
        self._http = http
        self._authority = TrustedAuthority(authority)

    @asynccontextmanager
    async def get(
        self, url: str, span: tuple[int, int] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse | None]:
        """Yields the response with an object's content; None where there is none.

        Args:
            url: for this GET.
            span: the offsets of the first byte and after the last one, where not all is wanted.
                A server may send everything all the same; :func:`object_bytes` tells.

        Raises:
            UrlRefusedError: the URL is not valid (any more).
            StoreUnavailableError, StoreError: the server did not answer, or refused.
        """
        headers = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        async with _translated(url), self._request("GET", url, headers=headers) as response:
            if response.status == _HTTP_NOT_FOUND:
                await _require_bucket(url, response)
                yield None
                return
            if span is None or response.status not in (_HTTP_PARTIAL, _HTTP_NO_SUCH_RANGE):
                await _require_ok(url, response)
            yield response

    async def size(self, url: str) -> int | None:
        """Returns the size of an object by its URL for HEAD; None where there is none.

        Raises: as :meth:`get`.
        """
        async with _translated(url), self._request("HEAD", url) as response:
            if response.status == _HTTP_NOT_FOUND:
                return None
            await _require_ok(url, response)
            return int(response.headers["Content-Length"])

    async def put(self, url: str, data: bytes, condition: dict[str, str] | None = None) -> str:
        """Puts an object or a part; returns its etag.

        Args:
            url: for this PUT.
            data: as many bytes as were signed.
            condition: the header that was signed, if any.

        Raises:
            ObjectExistsError: the condition does not hold.
            StoreFullError: no space is left.
            UrlRefusedError, StoreUnavailableError, StoreError: as :meth:`get`.
        """
        headers = {"Content-Length": str(len(data)), **(condition or {})}
        async with (
            _translated(url),
            self._request("PUT", url, data=io.BytesIO(data), headers=headers) as answer,
        ):
            if answer.status in _HTTP_CONFLICTS:
                raise ObjectExistsError(f"there is an object already ({answer.status})")
            await _require_ok(url, answer)
            return answer.headers.get("ETag", "")

    def _request(
        self, method: str, url: str, **more: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        tls = self._authority.context()
        return self._http.request(
            method, URL(url, encoded=True), ssl=tls, allow_redirects=method != "HEAD", **more
        )


def is_partial(response: aiohttp.ClientResponse) -> bool:
    """Returns whether a response has a part of an object."""
    return response.status == _HTTP_PARTIAL


def object_bytes(response: aiohttp.ClientResponse) -> int:
    """Returns the size of the object of which a response has the content, or a part of it.

    Raises:
        StoreError: the server does not say it.
    """
    if response.status == _HTTP_NO_SUCH_RANGE:
        return 0  # asked for its first bytes, an empty object has none
    if is_partial(response):
        span = response.headers.get("Content-Range", "")
        size = span.rpartition("/")[2]
        if not (size.isascii() and size.isdecimal()):
            raise StoreError(
                f"the server does not say how large the object is: Content-Range is {span!r}",
                where=_object(str(response.url)),
                remedy="use a server that answers ranges as S3 does",
            )
        return int(size)
    return response.content_length or 0


@asynccontextmanager
async def _translated(url: str) -> AsyncIterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise StoreUnavailableError(
            f"the certificate of the bucket's server is not trusted: {error}",
            where=_object(url),
            remedy="name the Secret with the authority's ca.crt in store.s3.caSecret (workers:"
            " --store-ca)",
        ) from error
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        raise StoreUnavailableError(
            f"the store did not answer: {error!r}",
            where=_object(url),
            remedy="check the endpoint and the network, then try again",
        ) from error


def _object(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


async def _require_bucket(url: str, response: aiohttp.ClientResponse) -> None:
    if b"NoSuchBucket" in await response.read():
        raise StoreError("there is no such bucket", where=_object(url), remedy="create it first")


async def _require_ok(url: str, response: aiohttp.ClientResponse) -> None:
    status = response.status
    if status == _HTTP_OK:
        return
    reason = f"{status} {(await response.text(errors='replace'))[:_REASON_CHARS]}".strip()
    where = _object(url)
    if status == _HTTP_FULL or any(code in reason for code in _FULL):
        raise StoreFullError(
            f"the bucket is full ({reason})",
            where=where,
            remedy="raise the quota; `fmesh cache gc` removes what nobody needs",
        )
    if status == _HTTP_FORBIDDEN:
        raise UrlRefusedError(
            f"the URL was refused ({reason})",
            where=where,
            remedy="check the clocks of worker, blob service and store, and the rights of the blob"
            " service's account",
        )
    if status >= _HTTP_SERVER_ERROR or status in _HTTP_RETRIED:
        raise StoreUnavailableError(
            reason, where=where, remedy="check the endpoint and the network, then try again"
        )
    raise StoreError(reason, where=where, remedy="see what the S3 server says of this code")
