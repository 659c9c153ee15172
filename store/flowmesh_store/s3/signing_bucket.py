"""A bucket that signs URLs for others; opened by the blob service."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flowmesh_core.units import Digest
from flowmesh_store.blobs import DEFAULT_GRACE_S
from flowmesh_store.keys import area_prefix, blob_name
from flowmesh_store.s3.blobs import S3Blobs
from flowmesh_store.s3.copier import BlobCopier
from flowmesh_store.s3.location import (
    S3Location,
    aws_session,
    connect_blobs,
    connect_records,
    parse_location,
)
from flowmesh_store.s3.presigner import Presigner, bucket_address
from flowmesh_store.s3.stored_blobs import StoredBlobs
from flowmesh_store.s3.uploads import MultipartUploads

_DEFAULT_REGION = "us-east-1"
ANY = "*"
PROBE_KEY = "proof/reachable"
"""An object that workers ask for, to see whether they reach the bucket; the service puts it."""


@dataclass(frozen=True, slots=True)
class BlobUrls:
    """Signs the URLs of blobs.

    Attributes:
        presigner: of the bucket.
        location: says the prefix of its keys.
    """

    presigner: Presigner
    location: S3Location

    def read(self, method: str, scope: str, digest: Digest) -> str:
        """Returns the URL of a GET or HEAD.

        Raises:
            StoreError: the scope or the digest is malformed.
        """
        return self.presigner.url(method, self._key(scope, digest))

    def probe(self) -> str:
        """Returns the URL of a HEAD of an object that says nothing, for a look at the bucket."""
        return self.presigner.url("HEAD", self.location.key(PROBE_KEY))

    def put(self, scope: str, digest: Digest, size_bytes: int, etag: str = "") -> str:
        """Returns the URL of a PUT of a number of bytes, and no others.

        It has the header ``If-None-Match: *``, or ``If-Match`` with the etag of what it replaces.

        Raises:
            StoreError: the scope or the digest is malformed.
        """
        condition = {"if-match": etag} if etag else {"if-none-match": ANY}
        headers = {**condition, "content-length": str(size_bytes)}
        return self.presigner.url("PUT", self._key(scope, digest), headers=headers)

    def part(self, scope: str, digest: Digest, upload_id: str, number: int, size_bytes: int) -> str:
        """Returns the URL of the PUT of one part of an upload, numbered from 1.

        Raises:
            StoreError: the scope or the digest is malformed.
        """
        return self.presigner.url(
            "PUT",
            self._key(scope, digest),
            headers={"content-length": str(size_bytes)},
            query={"partNumber": str(number), "uploadId": upload_id},
        )

    def _key(self, scope: str, digest: Digest) -> str:
        return self.location.key(area_prefix(scope) + blob_name(digest))


@dataclass(frozen=True, slots=True)
class SigningBucket:
    """What the blob service does in a bucket.

    Attributes:
        urls: signs.
        stored: finds, renews, copies and discards blobs.
        uploads: begins and ends multipart uploads.
        location: of the bucket.
        delete: deletes an object by its key in the bucket; for the check at start.
        close: closes the connections.
    """

    urls: BlobUrls
    stored: StoredBlobs
    uploads: MultipartUploads
    location: S3Location
    delete: Callable[[str], None]
    close: Callable[[], None]


def open_signing_bucket(url: str, *, grace_s: float = DEFAULT_GRACE_S) -> SigningBucket:
    """Opens a bucket; no connection is opened yet.

    Args:
        url: as for ``open_store``.
        grace_s: the collector's grace.

    Raises:
        StoreError: the address is malformed, or there are no credentials.
    """
    location = parse_location(url)
    session = aws_session(location)
    credentials = session.get_credentials()
    assert credentials is not None
    store, client = connect_blobs(location), connect_records(location)
    copier = BlobCopier(store, client, location)
    area = partial(S3Blobs, store, copier=copier, where=location.url, grace_s=grace_s)
    region = session.region_name or _DEFAULT_REGION
    address = bucket_address(location, client.meta.endpoint_url, region)
    presigner = Presigner(address, credentials.get_frozen_credentials)
    return SigningBucket(
        BlobUrls(presigner, location),
        StoredBlobs(store, area, copier, where=location.url, grace_s=grace_s),
        MultipartUploads(client, location),
        location,
        lambda key: client.delete_object(Bucket=location.bucket, Key=key) and None,
        client.close,
    )
