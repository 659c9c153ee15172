"""A batch's record keeps what several writers change at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest

from flowmesh_control.openai.batches import BatchService
from flowmesh_control.openai.records import BATCHES, BatchRecord, OpenAiRecords
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.units import Digest
from flowmesh_store.ports import Record, RecordStore
from flowmesh_store.store import open_store

BATCH = BatchRecord(
    id="batch_1",
    namespace="team-a",
    uid="batch-1",
    endpoint="/v1/embeddings",
    file_id="file-1",
    window="24h",
    created_s=1.0,
    scope="ns.team-a",
)
INDEX = Digest("5" * 64)


@dataclass(slots=True)
class ChangedBetween:
    """A record store where another writes between a writer's read and its write."""

    records: RecordStore
    other: Callable[[], Awaitable[object]]
    times: int

    async def read(self, key: str) -> Record | None:
        return await self.records.read(key)

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        if self.times:
            self.times -= 1
            await self.other()
        return await self.records.write(key, data, if_match=if_match)

    def keys(self, prefix: str) -> AsyncIterator[str]:
        return self.records.keys(prefix)


@pytest.fixture
def records(tmp_path: Path) -> RecordStore:
    return open_store(tmp_path.as_uri()).records


def batches(records: RecordStore) -> OpenAiRecords[BatchRecord]:
    return OpenAiRecords(records, BATCHES, BatchRecord)


def counted(record: BatchRecord) -> BatchRecord:
    return msgspec.structs.replace(record, total=record.total + 1)


async def test_a_cancellation_keeps_what_was_written_in_between(records: RecordStore) -> None:
    plain = batches(records)
    await plain.write(BATCH)

    async def start() -> None:
        await plain.write(msgspec.structs.replace(BATCH, index=INDEX))

    service = object.__new__(BatchService)
    for name, value in {
        "batches": batches(ChangedBetween(records, start, 1)),
        "clock": lambda: 5.0,
        "has_ended": lambda _: True,
    }.items():
        object.__setattr__(service, name, value)
    found = await service.cancel(BATCH)
    assert found == await plain.read("team-a", "batch_1")
    assert (found.index, found.cancelling_s) == (INDEX, 5.0)


async def test_changes_at_once_are_all_kept(records: RecordStore) -> None:
    plain = batches(records)
    await plain.write(BATCH)
    await asyncio.gather(*(plain.change(BATCH, counted) for _ in range(5)))
    assert (await plain.read("team-a", "batch_1")).total == 5


async def test_a_record_that_changes_each_time_is_an_error_that_may_be_retried(
    records: RecordStore,
) -> None:
    plain = batches(records)
    await plain.write(BATCH)
    busy = batches(ChangedBetween(records, partial(plain.change, BATCH, counted), 1000))
    with pytest.raises(StoreUnavailableError, match=r"changed meanwhile.*"):
        await busy.change(BATCH, counted)
