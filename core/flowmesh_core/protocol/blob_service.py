"""Requests of workers to the blob service, and its responses, as JSON (ADR 44).

Every request has an attempt token in its header ``Authorization: Bearer``, which says the scopes
that it may read and the one that it may write. Blobs are put and copied into the write scope only.
"""

from typing import Literal

import msgspec

from flowmesh_core.units import Digest

URLS_MAX = 256
"""URLs of one response."""
SINGLE_PUT_BYTES_MAX = 5 << 30
"""S3's limit of an object that is put by one request."""

Method = Literal["GET", "HEAD", "PUT"]


class UrlRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One URL that a worker asks for.

    Attributes:
        method: that the URL is for.
        scope: where the blob lies; for PUT it must be the write scope.
        size_bytes: of the blob to put.
    """

    method: Method
    scope: str
    digest: Digest
    size_bytes: int = 0


class UrlBatch(msgspec.Struct, frozen=True):
    """``POST /v1/urls``: asks for URLs; the response has them in the same order."""

    requests: tuple[UrlRequest, ...]


class SignedUrls(msgspec.Struct, frozen=True):
    """URLs for one request each, valid for 15 minutes."""

    urls: tuple[str, ...]


class BlobRequest(msgspec.Struct, frozen=True):
    """``POST /v1/copy`` and ``/v1/discard``: a blob of a scope that the token may read."""

    scope: str
    digest: Digest


class CopyResponse(msgspec.Struct, frozen=True):
    """Whether the scope has the blob, which was then copied."""

    found: bool


class PutRequest(msgspec.Struct, frozen=True):
    """``POST /v1/existing`` and ``/v1/uploads``: a blob that a worker wants to have stored."""

    digest: Digest
    size_bytes: int


class ExistingResponse(msgspec.Struct, frozen=True):
    """What was found where a PUT was refused because there is an object.

    Attributes:
        stored: the blob is stored, and is safe from collection for the grace.
        url: for the PUT of a blob that is not.
        etag: the value of ``If-Match`` of that PUT; empty where there is no object any more, and
            the PUT has ``If-None-Match: *``.
    """

    stored: bool
    url: str = ""
    etag: str = ""


class UploadResponse(msgspec.Struct, frozen=True):
    """A multipart upload that was begun.

    Attributes:
        stored: the blob is stored already, and no upload was begun.
        upload_id: the server's name of the upload.
        part_bytes: the size of all parts but the last.
        urls: for the PUTs of the first parts.
    """

    stored: bool
    upload_id: str = ""
    part_bytes: int = 0
    urls: tuple[str, ...] = ()


class PartsRequest(msgspec.Struct, frozen=True):
    """``POST /v1/uploads/parts``: asks for the URLs of parts from a number (from 1) on."""

    digest: Digest
    size_bytes: int
    upload_id: str
    first: int


class CompleteRequest(msgspec.Struct, frozen=True):
    """``POST /v1/uploads/complete``: makes the blob of its parts, unless there is one already."""

    digest: Digest
    upload_id: str
    etags: tuple[str, ...]


class AbortRequest(msgspec.Struct, frozen=True):
    """``POST /v1/uploads/abort``: gives an upload up."""

    digest: Digest
    upload_id: str
