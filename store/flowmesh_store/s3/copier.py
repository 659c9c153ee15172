"""Copies blobs inside a bucket: the server does the work, in parts where they are large."""

import asyncio
from typing import TYPE_CHECKING

import obstore
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import BaseError
from obstore.store import S3Store

from flowmesh_store.s3.errors import blobs_error, records_error, status_of
from flowmesh_store.s3.location import S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PARTS_FROM_BYTES = 4 << 30
"""One request copies up to 5 GB."""
_PART_BYTES = 512 << 20
_HTTP_NOT_FOUND = 404


class BlobCopier:
    """Copies objects of one bucket."""

    def __init__(
        self,
        store: S3Store,
        client: "S3Client",
        location: S3Location,
        *,
        parts_from_bytes: int = PARTS_FROM_BYTES,
    ) -> None:
        """Keeps the arguments.

        Args:
            store: copies whole objects.
            client: copies in parts.
            location: bucket and prefix.
            parts_from_bytes: the size from which an object is copied in parts.
        """
        self._store = store
        self._client = client
        self._location = location
        self._parts_from_bytes = parts_from_bytes

    async def copy(self, source: str, target: str, size_bytes: int) -> bool:
        """Copies an object; returns False if the source was deleted meanwhile.

        Raises:
            StoreFullError, StoreUnavailableError, StoreError: it was not copied.
        """
        if size_bytes >= self._parts_from_bytes:
            return await self._in_parts(source, target)
        try:
            await obstore.copy_async(self._store, source, target)
        except FileNotFoundError:
            return False
        except BaseError as error:
            raise blobs_error(error, f"{self._location.url}: {target}") from error
        return True

    async def renew(self, key: str) -> bool:
        """Copies an object onto itself, so that it counts as written now.

        Returns False if it was deleted meanwhile.

        In parts: some servers take a copy of a whole object onto itself for a change of its
        metadata, and leave its time as it is.

        Raises:
            StoreFullError, StoreUnavailableError, StoreError: it was not renewed.
        """
        return await self._in_parts(key, key)

    async def _in_parts(self, source: str, target: str) -> bool:
        try:
            await asyncio.to_thread(self._copy_parts, source, target)
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and status_of(error) == _HTTP_NOT_FOUND:
                return False
            raise records_error(error, f"{self._location.url}: {target}") from error
        return True

    def _copy_parts(self, source: str, target: str) -> None:
        bucket, parts = self._location.bucket, min(_PART_BYTES, self._parts_from_bytes)
        self._client.copy(
            {"Bucket": bucket, "Key": self._location.key(source)},
            bucket,
            self._location.key(target),
            Config=TransferConfig(multipart_threshold=1, multipart_chunksize=parts),
        )
