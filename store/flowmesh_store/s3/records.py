"""Records in an S3 bucket, by boto3: conditional writes as S3 defines them.

Folders are listed by obstore: boto3 takes twenty times its processor time, and whoever starts to
lead waits for a listing of all runs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import BaseError
from obstore.store import S3Store

from flowmesh_core.errors import ConditionFailedError, StoreError, StoreUnavailableError
from flowmesh_store.keys import CAS, check_key
from flowmesh_store.ports import Record
from flowmesh_store.s3.errors import blobs_error, code_of, records_error, retries_of, status_of
from flowmesh_store.s3.location import RECORD_CONNECTIONS, S3Location
from flowmesh_store.sweep import StoredRecord

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_T = TypeVar("_T")
_PAGE = 1000
_NOT_FOUND = 404
_CONFLICT = 409
_PRECONDITION_FAILED = 412
_CONFLICT_ROUNDS = 8


class S3Records:
    """Records as objects. The etag is the server's."""

    def __init__(
        self,
        client: "S3Client",
        store: S3Store,
        location: S3Location,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Takes the clients and where in which bucket the records are.

        Args:
            client: used from several threads.
            store: lists folders.
            location: bucket and prefix.
            now: the time, comparable with the server's.
        """
        self._client = client
        self._store = store
        self.location = location
        self._now = now
        self._threads = ThreadPoolExecutor(RECORD_CONNECTIONS, thread_name_prefix="s3-records")

    def close(self) -> None:
        """Closes the connections."""
        self._threads.shutdown()
        self._client.close()

    async def read(self, key: str) -> Record | None:
        """As :meth:`RecordStore.read`."""
        return await self._call(key, self._read, check_key(key))

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """As :meth:`RecordStore.write`."""
        return await self._call(key, self._write, check_key(key), data, if_match)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordStore.keys`."""
        async for record in self.aged(prefix):
            yield record.key

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordFolders.folders`."""
        try:
            found = await obstore.list_with_delimiter_async(self._store, prefix)
        except BaseError as error:
            raise blobs_error(error, f"{self.location.url}: {prefix}") from error
        for path in sorted(found["common_prefixes"]):
            yield path.rpartition("/")[2]

    async def aged(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """As :meth:`SweepableRecords.aged`."""
        if prefix.endswith("/"):
            async for record in self._folder(prefix):
                yield record
            return
        pages = self._pages(prefix)
        while (page := await self._call(prefix, next, pages, None)) is not None:
            for record in page:
                yield record

    async def _folder(self, prefix: str) -> AsyncIterator[StoredRecord]:
        try:
            async for page in obstore.list(self._store, prefix, chunk_size=_PAGE):
                now = self._now()
                for item in page:
                    age = (now - item["last_modified"]).total_seconds()
                    yield StoredRecord(item["path"], item["size"], max(0.0, age))
        except BaseError as error:
            raise blobs_error(error, f"{self.location.url}: {prefix}") from error

    async def delete(self, key: str, *, older_than_s: float) -> bool:
        """As :meth:`SweepableRecords.delete`."""
        return await self._call(key, self._delete, check_key(key), older_than_s)

    async def _call(self, where: str, function: Callable[..., _T], *args: Any) -> _T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, partial(function, *args))
        except (BotoCoreError, ClientError) as error:
            raise records_error(error, f"{self.location.url}: {where}") from error

    def _read(self, key: str) -> Record | None:
        try:
            answer = self._client.get_object(
                Bucket=self.location.bucket, Key=self.location.key(key)
            )
        except ClientError as error:
            if status_of(error) == _NOT_FOUND and code_of(error) != "NoSuchBucket":
                return None
            raise
        with answer["Body"] as body:
            return Record(body.read(), answer["ETag"])

    def _write(self, key: str, data: bytes, if_match: str | None) -> str:
        for _ in range(_CONFLICT_ROUNDS):
            try:
                return self._put(key, data, if_match)
            except ClientError as error:
                status = status_of(error)
                if status == _CONFLICT:
                    continue  # another conditional request was under way: S3 asks to repeat
                if status == _PRECONDITION_FAILED:
                    return self._own_or_failed(key, data, if_match, error)
                if status == _NOT_FOUND and if_match is not None:
                    raise self._failed(key, if_match) from None
                raise
        raise StoreUnavailableError(
            f"another write was under way {_CONFLICT_ROUNDS} times in a row",
            where=key,
            remedy="see that only one control plane uses the bucket, then try again",
        )

    def _put(self, key: str, data: bytes, if_match: str | None) -> str:
        put = partial(
            self._client.put_object,
            Bucket=self.location.bucket,
            Key=self.location.key(key),
            Body=data,
        )
        answer = put(IfNoneMatch="*") if if_match is None else put(IfMatch=if_match)
        return answer["ETag"]

    def _own_or_failed(
        self, key: str, data: bytes, if_match: str | None, error: ClientError
    ) -> str:
        """A repeated request may be refused because its first sending was heard after all."""
        if retries_of(error):
            found = self._read(key)
            if found is not None and found.data == data:
                return found.etag
        raise self._failed(key, if_match) from None

    @staticmethod
    def _failed(key: str, if_match: str | None) -> StoreError:
        return ConditionFailedError(
            "the record is there" if if_match is None else "the record has changed",
            where=key,
            remedy="read it and decide again",
        )

    def _pages(self, prefix: str) -> Iterator[list[StoredRecord]]:
        """Pages of records; the blobs are stepped over, not listed."""
        if not f"{CAS}/".startswith(prefix):
            yield from self._list(prefix)
            return
        top: list[tuple[str, StoredRecord | None]] = []
        for page in self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.location.bucket, Prefix=self.location.key(prefix), Delimiter="/"
        ):
            for folder in page.get("CommonPrefixes", ()):
                top.append((self.location.relative(folder["Prefix"]), None))
            for item in page.get("Contents", ()):
                record = self._record(item)
                top.append((record.key, record))
        for name, alone in sorted(top, key=lambda pair: pair[0]):
            if alone is not None:
                yield [alone]
            elif name != f"{CAS}/":
                yield from self._list(name)

    def _list(self, prefix: str) -> Iterator[list[StoredRecord]]:
        for page in self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self.location.bucket, Prefix=self.location.key(prefix)
        ):
            yield [self._record(item) for item in page.get("Contents", ())]

    def _record(self, item: Any) -> StoredRecord:
        age = (self._now() - item["LastModified"]).total_seconds()
        return StoredRecord(self.location.relative(item["Key"]), item["Size"], max(0.0, age))

    def _delete(self, key: str, older_than_s: float) -> bool:
        bucket, name = self.location.bucket, self.location.key(key)
        try:
            head = self._client.head_object(Bucket=bucket, Key=name)
            if (self._now() - head["LastModified"]).total_seconds() < older_than_s:
                return False
            self._client.delete_object(Bucket=bucket, Key=name, IfMatch=head["ETag"])
        except ClientError as error:
            if status_of(error) in (_NOT_FOUND, _PRECONDITION_FAILED):
                return False
            raise
        return True
