"""The index of ended runs: a next leader reads nothing of a run that it lists."""

from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.why import AttemptLine
from flowmesh_control.records.accounts import AccountsRecord, AccountStore
from flowmesh_control.records.archive import Archive
from flowmesh_control.records.ended_index import LINES, EndedRunIndex, read_ended
from flowmesh_control.records.keys import final_key, segment_key, spec_key
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.run_ownership import read_taken, write_taken
from flowmesh_control.records.run_records import FinalRecord, SpecRecord
from flowmesh_control.runs.recovery import RecoveredState, recover
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.ledger_lines import encode_lines
from flowmesh_core.errors import DamagedRecordError
from flowmesh_core.identity import digest_bytes
from flowmesh_store.ports import Record, Records
from flowmesh_store.store import Store

PAID = 7


class Reads:
    """Records that count what is read and listed of each run; of "" where all are listed."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.of: Counter[str] = Counter()

    async def read(self, key: str) -> Record | None:
        if key.startswith("runs/"):
            self.of[key.split("/")[1]] += 1
        return await self._records.read(key)

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        return await self._records.write(key, data, if_match=if_match)

    def keys(self, prefix: str) -> AsyncIterator[str]:
        if prefix.startswith("runs/"):
            self.of[prefix.split("/")[1]] += 1
        return self._records.keys(prefix)

    def folders(self, prefix: str) -> AsyncIterator[str]:
        return self._records.folders(prefix)


class LosesAnAnswer(Reads):
    """The second write reaches the store, and its answer is lost."""

    written = 0

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        etag = await super().write(key, data, if_match=if_match)
        self.written += 1
        if self.written == 2:
            raise ConnectionError(key)
        return etag


async def ends(records: Records, uid: str, epoch: int = 1, ended_s: float = 3.0) -> FinalRecord:
    """A run that ended, with one attempt paid."""
    spec = SpecRecord(uid, "n", "team-a", "d", 0.5, {})
    line = AttemptLine(1.0, "s", 0, digest_bytes(b"a"), f"t-{uid}", "w", "i1", "published",
                       PAID, PAID)  # fmt: skip
    final = FinalRecord(epoch, RunStatus(uid, "n", "team-a", "Succeeded", 0.5, ended_s))
    await records.write(spec_key(uid), msgspec.json.encode(spec))
    await records.write(segment_key(uid, epoch, 1), encode_lines([line]))
    await records.write(final_key(uid), msgspec.json.encode(final))
    return final


async def taken_over(records: Records, epoch: int) -> tuple[RecoveredState, Archive, EndedRunIndex]:
    archive, index = Archive(records), EndedRunIndex(records, epoch=epoch)
    found = await recover(
        records,
        ledger=LedgerWriter(records, epoch=epoch),
        archive=archive,
        index=index,
        catalog=builtin_catalog(),
        deaths={},
    )
    return found, archive, index


async def test_a_run_with_a_line_is_listed_without_reading_its_records(store: Store) -> None:
    first, records = EndedRunIndex(store.records, epoch=1), Reads(store.records)
    for uid, ended_s in (("a", 9.0), ("b", 5.0)):
        first.add(await ends(store.records, uid, ended_s=ended_s))
    counted = AccountsRecord(1.0, FabricAccount(receipts_nanousd=2 * PAID), {}, {}, {}, epoch=1)
    await AccountStore(store.records, epoch=1).write(counted)
    await first.write(first.waiting())
    await ends(store.records, "last")

    found, archive, index = await taken_over(records, 2)
    assert set(records.of) == {"last"}
    assert [run.uid for run in archive.summaries()] == ["b", "a", "last"]
    assert found.opening.book.receipts_nanousd == 3 * PAID
    assert index.waiting() == 1

    # And the one that had none has it from the leader that found it.
    await index.write(index.waiting())
    records.of.clear()
    assert [r.uid for r in (await taken_over(records, 3))[1].summaries()] == ["last", "b", "a"]
    assert not records.of


async def test_a_line_of_a_leader_that_was_superseded_does_not_count(store: Store) -> None:
    """A frozen leader writes an end and its line after another one has taken the run up."""
    late = EndedRunIndex(store.records, epoch=1)
    late.add(await ends(store.records, "a"))
    await late.write(1)
    await write_taken(store.records, epoch=2, uids=["a"])
    await store.records.write(segment_key("a", 2, 0), b'{"1": 0}')
    _, archive, _ = await taken_over(store.records, 3)
    with pytest.raises(DamagedRecordError, match="it is missing"):  # so it is taken up as it should
        await archive.get("a")


async def test_a_leader_that_died_before_it_opened_a_run_makes_no_end_void(store: Store) -> None:
    late = EndedRunIndex(store.records, epoch=1)
    late.add(await ends(store.records, "a"))
    await late.write(1)
    await write_taken(store.records, epoch=2, uids=["a"])
    found, archive, _ = await taken_over(store.records, 3)
    assert not found.submitted
    assert [run.uid for run in archive.summaries()] == ["a"]


async def test_a_leader_records_the_runs_that_it_opens_before_it_opens_them(store: Store) -> None:
    """Else a frozen leader's late line would hide a run that another one has opened."""
    await ends(store.records, "ended")
    spec = SpecRecord("open", "n", "team-a", "d", 0.5, {})
    await store.records.write(spec_key("open"), msgspec.json.encode(spec))
    _, archive, _ = await taken_over(store.records, 2)
    assert {run.uid: run.phase for run in archive.summaries()} == {
        "ended": "Succeeded",
        "open": "unreadable",
    }
    assert await read_taken(store.records) == {"open": 2}


async def test_a_run_that_was_removed_from_the_store_is_not_listed(store: Store) -> None:
    index = EndedRunIndex(store.records, epoch=1)
    index.add(FinalRecord(1, RunStatus("gone", "n", "team-a", "Succeeded", 0.5, 3.0)))
    await index.write(1)
    assert (await taken_over(store.records, 2))[1].summaries() == []


async def test_lines_added_after_the_accounts_were_captured_wait_for_the_next_write(
    store: Store,
) -> None:
    index = EndedRunIndex(store.records, epoch=1)
    index.add(await ends(store.records, "a"))
    count = index.waiting()
    index.add(await ends(store.records, "b"))
    await index.write(count)
    assert set(await read_ended(store.records)) == {"a"}
    assert index.waiting() == 1


async def test_segments_are_bounded_and_all_are_read(store: Store) -> None:
    index = EndedRunIndex(store.records, epoch=1)
    status = RunStatus("", "n", "team-a", "Succeeded", 0.5, 3.0)
    for n in range(2 * LINES + 1):
        index.add(FinalRecord(1, msgspec.structs.replace(status, uid=f"u{n}")))
        if n % 90 == 0:
            await index.write(index.waiting())
    await index.write(index.waiting())
    assert len([key async for key in store.records.keys("ended/")]) == 3
    assert len(await read_ended(store.records)) == 2 * LINES + 1


async def test_a_write_whose_response_was_lost_is_repeated(store: Store) -> None:
    index = EndedRunIndex(LosesAnAnswer(store.records), epoch=1)
    for uid in ("a", "b"):
        index.add(FinalRecord(1, RunStatus(uid, "n", "team-a", "Succeeded", 0.5, 3.0)))
        if uid == "a":
            await index.write(1)
    with pytest.raises(ConnectionError):
        await index.write(1)
    await index.write(1)
    assert set(await read_ended(store.records)) == {"a", "b"}
