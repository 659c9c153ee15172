"""Multipart uploads of blobs whose parts are put by others, through presigned URLs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from flowmesh_core.errors import StoreError
from flowmesh_core.units import Digest
from flowmesh_store.keys import area_prefix, blob_name
from flowmesh_store.s3.errors import code_of, records_error
from flowmesh_store.s3.location import S3Location
from flowmesh_store.s3.stored_blobs import Placeholder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

PART_BYTES = 16 << 20
PARTS_MAX = 10_000
_MIB = 1 << 20
_LOST_RACE = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_NO_UPLOAD = "NoSuchUpload"


def part_bytes(size_bytes: int) -> int:
    """Returns the size of the parts of a blob: in whole MiB, so that 10,000 are enough."""
    least = -(-size_bytes // PARTS_MAX)
    return max(PART_BYTES, -(-least // _MIB) * _MIB)


class MultipartUploads:
    """Begins and ends uploads; their keys follow from scope and digest."""

    def __init__(self, client: "S3Client", location: S3Location) -> None:
        self._client = client
        self._location = location

    async def begin(self, scope: str, digest: Digest) -> str:
        """Returns the id of a new upload.

        Raises:
            StoreError: the server did not answer, or refused.
        """
        answer = await self._call(self._client.create_multipart_upload, scope, digest)
        return str(answer["UploadId"])

    async def complete(
        self,
        scope: str,
        digest: Digest,
        upload_id: str,
        etags: Sequence[str],
        place: Placeholder,
    ) -> None:
        """Makes the object of its parts, unless another one has taken its place.

        Args:
            scope: of the blob.
            digest: of the blob.
            upload_id: of the upload.
            etags: of all parts, in order.
            place: what lies there now.

        Raises:
            StoreError: a part is missing, or the server did not answer, or refused.
        """
        parts: list[CompletedPartTypeDef] = [
            {"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, 1)
        ]
        condition: dict[str, Any] = {"IfMatch": place.etag} if place.etag else {"IfNoneMatch": "*"}
        try:
            await asyncio.to_thread(
                self._client.complete_multipart_upload,
                Bucket=self._location.bucket,
                Key=self._key(scope, digest),
                UploadId=upload_id,
                MultipartUpload={"Parts": parts},
                **condition,
            )
        except ClientError as error:
            if code_of(error) not in _LOST_RACE:
                raise records_error(error, self._location.url) from error
            await self.abort(scope, digest, upload_id)
        except BotoCoreError as error:
            raise records_error(error, self._location.url) from error

    async def abort(self, scope: str, digest: Digest, upload_id: str) -> None:
        """Gives an upload up; one that does not exist is none of the caller's faults."""
        try:
            await self._call(self._client.abort_multipart_upload, scope, digest, UploadId=upload_id)
        except StoreError as error:
            if _NO_UPLOAD not in str(error):
                raise

    async def _call(self, call: Callable[..., Any], scope: str, digest: Digest, **more: Any) -> Any:
        key = self._key(scope, digest)
        try:
            return await asyncio.to_thread(call, Bucket=self._location.bucket, Key=key, **more)
        except (BotoCoreError, ClientError) as error:
            raise records_error(error, self._location.url) from error

    def _key(self, scope: str, digest: Digest) -> str:
        return self._location.key(area_prefix(scope) + blob_name(digest))
