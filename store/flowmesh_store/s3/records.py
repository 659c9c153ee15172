"""Records in an S3 bucket, with S3's conditional writes.

They are accessed with obstore, which needs an eighth of boto3's processor time per request, most of
it outside the interpreter lock. boto3 is used for the collector's conditional deletion, which
obstore does not offer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import obstore
from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from flowmesh_core.errors import ConditionFailedError, StoreError, StoreUnavailableError
from flowmesh_store.collection.sweep import ANY_AGE, StoredRecord
from flowmesh_store.keys import CAS, check_key
from flowmesh_store.ports import Record
from flowmesh_store.s3.errors import blobs_error, is_missing_bucket, records_error, status_of
from flowmesh_store.s3.location import DELETE_CONNECTIONS, S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PAGE = 1000
_NOT_FOUND = 404
_PRECONDITION_FAILED = 412
_READ_ROUNDS = 3
_CONFLICT_ROUNDS = 8
_CONFLICT_S = 0.02


class S3Records:
    """Records as objects, with the server's etags."""

    def __init__(
        self,
        client: "S3Client",
        store: S3Store,
        location: S3Location,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Keeps the arguments.

        Args:
            client: deletes, from several threads.
            store: reads, writes and lists.
            location: bucket and prefix.
            now: the time, comparable with the server's.
        """
        self._client = client
        self._store = store
        self.location = location
        self._now = now
        self._threads = ThreadPoolExecutor(DELETE_CONNECTIONS, thread_name_prefix="s3-records")

    def close(self) -> None:
        """Closes the connections."""
        self._threads.shutdown()
        self._client.close()

    async def read(self, key: str) -> Record | None:
        """As :meth:`RecordStore.read`; a truncated body is requested again."""
        cut: BaseError | None = None
        for _ in range(_READ_ROUNDS):
            try:
                answer = await obstore.get_async(self._store, check_key(key))
            except FileNotFoundError as error:
                if is_missing_bucket(error):
                    raise self._error(error, key) from error
                return None
            except BaseError as error:
                raise self._error(error, key) from error
            try:
                data = bytes(await answer.bytes_async())
            except BaseError as error:
                cut = error
                continue
            if data or await self._is_empty(key):
                return Record(data, answer.meta["e_tag"] or "")
        raise StoreUnavailableError(
            f"its content was cut short {_READ_ROUNDS} times in a row",
            where=f"{self.location.url}: {key}",
            remedy="check the endpoint, the network and proxies on the way, then try again",
        ) from cut

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        """As :meth:`RecordStore.write`.

        A request may be refused because the client or a proxy sent it twice and the first one took
        effect. So after a refusal the record is read, and equal bytes count as written.
        """
        check_key(key)
        for number in range(1, _CONFLICT_ROUNDS + 1):
            refused = await self._put(key, data, if_match)
            if isinstance(refused, str):
                return refused
            found = await self.read(key)
            if found is not None and found.data == data:
                return found.etag
            if (None if found is None else found.etag) != if_match:
                raise _failed(key, if_match)
            # The condition holds, so another conditional request was under way (409).
            await asyncio.sleep(number * _CONFLICT_S)
        if isinstance(refused, PreconditionError):
            raise _failed(key, if_match)
        raise StoreUnavailableError(
            f"another write was under way {_CONFLICT_ROUNDS} times in a row",
            where=key,
            remedy="see that only one control plane uses the bucket, then try again",
        )

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordStore.keys`."""
        async for record in self.aged(prefix):
            yield record.key

    async def folders(self, prefix: str) -> AsyncIterator[str]:
        """As :meth:`RecordFolders.folders`."""
        try:
            found = await obstore.list_with_delimiter_async(self._store, prefix)
        except BaseError as error:
            raise self._error(error, prefix) from error
        for path in sorted(found["common_prefixes"]):
            yield path.rpartition("/")[2]

    async def aged(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """As :meth:`SweepableRecords.aged`."""
        folder = prefix.rpartition("/")[0]
        parts = self._folder(f"{folder}/") if folder else self._top(prefix)
        async for record in parts:
            if record.key.startswith(prefix):
                yield record

    async def delete(self, key: str, *, older_than_s: float) -> bool:
        """As :meth:`SweepableRecords.delete`."""
        if older_than_s == ANY_AGE:
            try:
                await obstore.delete_async(self._store, check_key(key))
            except BaseError as error:
                raise self._error(error, key) from error
            return True
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads, self._delete, check_key(key), older_than_s
            )
        except (BotoCoreError, ClientError) as error:
            raise records_error(error, f"{self.location.url}: {key}") from error

    async def erase_deleted(self) -> None:
        """As :meth:`SweepableRecords.erase_deleted`: only versions of the bucket keep them."""

    async def _put(self, key: str, data: bytes, if_match: str | None) -> str | BaseError:
        """Returns the new etag, or the error with which the server refused the condition."""
        try:
            answer = await obstore.put_async(
                self._store,
                key,
                data,
                mode="create" if if_match is None else {"e_tag": if_match},
                use_multipart=False,
            )
        except (AlreadyExistsError, PreconditionError) as error:
            return error
        except (BaseError, FileNotFoundError) as error:
            raise self._error(error, key) from error
        return answer["e_tag"] or ""

    async def _is_empty(self, key: str) -> bool:
        """Whether the object is empty, and not only the body that was read."""
        try:
            meta = await obstore.head_async(self._store, key)
        except FileNotFoundError:
            return False
        except BaseError as error:
            raise self._error(error, key) from error
        return not meta["size"]

    async def _top(self, prefix: str) -> AsyncIterator[StoredRecord]:
        """Yields the records in first-level folders that match the prefix, without the blobs."""
        try:
            found = await obstore.list_with_delimiter_async(self._store)
        except BaseError as error:
            raise self._error(error, prefix) from error
        top: dict[str, StoredRecord | None]
        top = {f"{path}/": None for path in found["common_prefixes"]}
        top |= {item["path"]: self._record(item, self._now()) for item in found["objects"]}
        for name, alone in sorted(top.items()):
            if alone is not None:
                yield alone
            elif name.startswith(prefix) and name != f"{CAS}/":
                async for record in self._folder(name):
                    yield record

    async def _folder(self, prefix: str) -> AsyncIterator[StoredRecord]:
        try:
            async for page in obstore.list(self._store, prefix, chunk_size=_PAGE):
                now = self._now()
                for item in page:
                    yield self._record(item, now)
        except BaseError as error:
            raise self._error(error, prefix) from error

    def _error(self, error: BaseError | FileNotFoundError, key: str) -> StoreError:
        return blobs_error(error, f"{self.location.url}: {key}")

    @staticmethod
    def _record(item: "obstore.ObjectMeta", now: datetime) -> StoredRecord:
        age = (now - item["last_modified"]).total_seconds()
        return StoredRecord(item["path"], item["size"], max(0.0, age))

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


def _failed(key: str, if_match: str | None) -> StoreError:
    return ConditionFailedError(
        "the record is there" if if_match is None else "the record has changed",
        where=key,
        remedy="read it and decide again",
    )
