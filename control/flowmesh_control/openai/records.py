"""Records of files and batches, by namespace; their ids sort by time."""

import contextlib
import logging
import secrets
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from flowmesh_control.records.keys import openai_prefix
from flowmesh_control.records.overwrite import overwrite
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.errors import (
    ConditionFailedError,
    DamagedRecordError,
    StoreUnavailableError,
)
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.units import Digest
from flowmesh_store.ports import RecordStore

log = logging.getLogger("flowmesh.control")

_NOT_FOUND = 404
_MILLI = 1000
_ID_BYTES = 8
_TRIES = 16
FILES, BATCHES = "files", "batches"


class FileRecord(msgspec.Struct, frozen=True):
    """An uploaded file.

    Attributes:
        blob: the digest of its bytes, in the namespace's own scope.
        deleted_s: when it was deleted; 0 while it was not.
    """

    id: str
    namespace: str
    filename: str
    size_bytes: int
    created_s: float
    blob: Digest
    scope: str
    deleted_s: float = 0.0


class FailedLine(msgspec.Struct, frozen=True):
    """Why a batch failed, with the line of its file; 0 for the whole file."""

    code: str
    message: str
    line: int = 0


class BatchRecord(msgspec.Struct, frozen=True):
    """A batch.

    Attributes:
        uid: of its run, which exists once ``index`` is set.
        window: as the user wrote it.
        scope: the namespace's own, which has the index.
        index: the digest of the custom ids and wrong lines; empty until the file was read.
        total: lines that are not blank; ``wrong`` of them are not sent.
        failed: why it cannot run; None where it can.
        cancelling_s: when its cancellation was requested; 0 while it was not.
    """

    id: str
    namespace: str
    uid: str
    endpoint: str
    file_id: str
    window: str
    created_s: float
    scope: str
    metadata: dict[str, str] = {}
    namespace_labels: dict[str, str] = {}
    index: Digest = Digest("")
    total: int = 0
    wrong: int = 0
    started_s: float = 0.0
    failed: FailedLine | None = None
    failed_s: float = 0.0
    cancelling_s: float = 0.0

    @property
    def is_validating(self) -> bool:
        """Whether its file is still to be read."""
        return not self.index and self.failed is None and not self.cancelling_s


class ErrorLine(msgspec.Struct, frozen=True):
    """A line of the input file that was not sent, with its response."""

    number: int
    custom_id: str | None
    status: int
    body: dict[str, dict[str, str | None]]


class BatchIndex(msgspec.Struct, frozen=True):
    """What the results of a batch are combined with: the ids of its requests, in order."""

    custom_ids: list[str]
    wrong: list[ErrorLine]


_Kind = TypeVar("_Kind", FileRecord, BatchRecord)


class OpenAiRecords(Generic[_Kind]):
    """The files, or the batches, of all namespaces."""

    def __init__(self, records: RecordStore, kind: str, record_type: type[_Kind]) -> None:
        """Keeps what is read.

        Args:
            records: of the store.
            kind: ``files`` or ``batches``.
            record_type: of this kind.
        """
        self._records = records
        self._kind = kind
        self._decoder: msgspec.json.Decoder[_Kind] = msgspec.json.Decoder(record_type)

    async def write(self, record: _Kind) -> None:
        """Writes a record, or replaces it."""
        key = openai_prefix(self._kind, record.namespace) + record.id
        await overwrite(self._records, key, msgspec.json.encode(record))

    async def change(self, record: _Kind, changed: Callable[[_Kind], _Kind]) -> _Kind:
        """Replaces a record by what a function makes of its newest version; returns that.

        Raises:
            StoreUnavailableError: it changed meanwhile, each time; try again.
        """
        key = openai_prefix(self._kind, record.namespace) + record.id
        for _ in range(_TRIES):
            there = await self._records.read(key)
            newest = record if there is None else decode_record(self._decoder, key, there)
            new = changed(newest)
            if new == newest:
                return newest
            with contextlib.suppress(ConditionFailedError):
                etag = None if there is None else there.etag
                await self._records.write(key, msgspec.json.encode(new), if_match=etag)
                return new
        raise StoreUnavailableError(f"it changed meanwhile, {_TRIES} times", where=key)

    async def read(self, namespace: str, name: str) -> _Kind:
        """Returns the record of an id.

        Raises:
            OpenAiError: the namespace has none.
        """
        found = (
            await self._at(openai_prefix(self._kind, namespace) + name) if _is_id(name) else None
        )
        if found is None:
            noun = "File" if self._kind == FILES else "Batch"
            raise OpenAiError(f"No such {noun} object: {name[:80]}", param="id", status=_NOT_FOUND)
        return found

    async def page(self, namespace: str, after: str, limit: int) -> tuple[list[_Kind], bool]:
        """Returns the latest records after an id, and whether there are more."""
        prefix = openai_prefix(self._kind, namespace)
        names = [key.removeprefix(prefix) async for key in self._records.keys(prefix)]
        names = [n for n in sorted(names, reverse=True) if not after or n < after]
        found: list[_Kind] = []
        for number, name in enumerate(names):
            record = await self._at(prefix + name)
            if record is not None:
                found.append(record)
            if len(found) == limit:
                return found, number + 1 < len(names)
        return found, False

    async def readable(self) -> list[_Kind]:
        """Returns the records of all namespaces without damaged ones, which it logs."""
        found = []
        async for key in self._records.keys(openai_prefix(self._kind)):
            try:
                record = await self._at(key)
            except DamagedRecordError as e:
                log.warning("it is left out: %s", e)
                continue
            if record is not None:
                found.append(record)
        return found

    async def all(self) -> list[_Kind]:
        """Returns the records of all namespaces.

        Raises:
            DamagedRecordError: one cannot be read.
        """
        keys = [key async for key in self._records.keys(openai_prefix(self._kind))]
        found = [await self._at(key) for key in keys]
        return [record for record in found if record is not None]

    async def _at(self, key: str) -> _Kind | None:
        record = await self._records.read(key)
        if record is None:
            return None
        found = decode_record(self._decoder, key, record)
        return None if isinstance(found, FileRecord) and found.deleted_s else found


def new_id(prefix: str, now_s: float) -> str:
    """Returns an id that cannot be guessed, and sorts after earlier ones."""
    return f"{prefix}{int(now_s * _MILLI):012x}{secrets.token_hex(_ID_BYTES)}"


def _is_id(name: str) -> bool:
    return name.replace("-", "").replace("_", "").isalnum() and name.isascii()
