"""The sweep of an S3 bucket, which only the control plane's credentials allow."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import BaseError
from obstore.store import S3Store

from flowmesh_core.units import Digest
from flowmesh_store.collection.sweep import ANY_AGE
from flowmesh_store.keys import CAS, area_prefix, blob_name, is_digest, is_scope
from flowmesh_store.ports import StoredBlob
from flowmesh_store.s3.blobs import head
from flowmesh_store.s3.errors import blobs_error, records_error
from flowmesh_store.s3.location import S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)


class S3Sweep:
    """Lists and deletes the blobs of a bucket."""

    def __init__(
        self,
        store: S3Store,
        client: "S3Client",
        location: S3Location,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Keeps the arguments.

        Args:
            store: lists and deletes.
            client: aborts multipart uploads.
            location: bucket and prefix.
            now: the time, comparable with the server's.
        """
        self._store = store
        self._client = client
        self._location = location
        self._now = now

    async def blobs(self, scope: str = "") -> AsyncIterator[StoredBlob]:
        """As :meth:`Sweepable.blobs`."""
        prefix = area_prefix(scope) if scope else f"{CAS}/"
        try:
            async for page in obstore.list(self._store, prefix):
                now = self._now()
                for item in page:
                    place, _, name = item["path"].removeprefix(f"{CAS}/").partition("/")
                    name = name.rpartition("/")[2]
                    if not (is_scope(place) and is_digest(name)):
                        log.warning(
                            "%s in %s is not FlowMesh's; skipped: move it elsewhere",
                            item["path"],
                            self._location.url,
                        )
                        continue
                    age = (now - item["last_modified"]).total_seconds()
                    yield StoredBlob(place, Digest(name), item["size"], max(0.0, age))
        except BaseError as error:
            raise blobs_error(error, self._location.url) from error

    async def delete(self, scope: str, digest: Digest, *, older_than_s: float) -> bool:
        """As :meth:`Sweepable.delete`."""
        key = area_prefix(scope) + blob_name(digest)
        if older_than_s != ANY_AGE:
            found = await head(self._store, key, self._location.url, self._now())
            if found is None or found[1] < older_than_s:
                return False
        try:
            await obstore.delete_async(self._store, key)
        except BaseError as error:
            raise blobs_error(error, self._location.url) from error
        return True

    async def discard_unfinished(self, *, older_than_s: float) -> int:
        """As :meth:`Sweepable.discard_unfinished`: aborts multipart uploads of dead writers."""
        try:
            return await asyncio.to_thread(self._abort_uploads, older_than_s)
        except (BotoCoreError, ClientError) as error:
            raise records_error(error, self._location.url) from error

    def _abort_uploads(self, older_than_s: float) -> int:
        count = 0
        bucket = self._location.bucket
        for page in self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, Prefix=self._location.key(f"{CAS}/")
        ):
            for upload in page.get("Uploads", ()):
                if (self._now() - upload["Initiated"]).total_seconds() >= older_than_s:
                    self._client.abort_multipart_upload(
                        Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                    )
                    count += 1
        return count
