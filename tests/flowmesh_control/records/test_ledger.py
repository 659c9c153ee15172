import asyncio
from pathlib import Path

import pytest
from tests.flowmesh_control.fabric import control_plane, machine_of, workflow

from flowmesh_control.records.epochs import SupersededError, begin_epoch, check_leads
from flowmesh_control.records.ledger import LedgerWriter, read_segments
from flowmesh_control.runs.admission import Submission
from flowmesh_core.accounting.ledger_lines import Line, VerdictLine
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.store import Store, open_store


def line(n: int) -> Line:
    return VerdictLine(time_s=float(n), phase="Running", message=str(n))


async def written(store: Store, uid: str = "run-1") -> list[str]:
    return [
        found.message
        for found in (await read_segments(store.records, uid)).lines
        if isinstance(found, VerdictLine)
    ]


async def test_lines_are_read_back_in_the_order_they_were_appended(store: Store) -> None:
    ledger = LedgerWriter(store.records, epoch=1)
    for n in range(3):
        ledger.append("run-1", line(n))
    await ledger.flush("run-1")
    ledger.append("run-1", line(3))
    assert await written(store) == ["0", "1", "2"]
    await ledger.flush_all()
    assert await written(store) == ["0", "1", "2", "3"]


async def test_a_flush_without_new_lines_writes_nothing(store: Store) -> None:
    ledger = LedgerWriter(store.records, epoch=1)
    ledger.append("run-1", line(0))
    await ledger.flush("run-1")
    await ledger.flush("run-1")
    await ledger.flush("run-2")
    assert [k async for k in store.records.keys("runs/")] == ["runs/run-1/ledger/00000001-00000001"]


async def test_a_later_epoch_reads_the_lines_of_earlier_epochs(store: Store) -> None:
    first = LedgerWriter(store.records, epoch=1)
    first.append("run-1", line(0))
    await first.flush_all()
    second = LedgerWriter(store.records, epoch=2)
    assert len(await second.open("run-1")) == 1
    second.append("run-1", line(1))
    await second.flush_all()
    assert await written(store) == ["0", "1"]


async def test_lines_that_a_superseded_leader_writes_do_not_count(
    store: Store,
) -> None:
    first = LedgerWriter(store.records, epoch=1)
    first.append("run-1", line(0))
    await first.flush_all()
    second = LedgerWriter(store.records, epoch=3)
    await second.open("run-1")
    first.append("run-1", line(666))
    await first.flush_all()
    unseen = LedgerWriter(store.records, epoch=2)
    unseen.append("run-1", line(667))
    await unseen.flush_all()
    second.append("run-1", line(1))
    await second.flush_all()
    assert await written(store) == ["0", "1"]
    third = LedgerWriter(store.records, epoch=4)
    assert len(await third.open("run-1")) == 2


async def test_two_writers_of_one_epoch_cannot_both_write(store: Store) -> None:
    one, other = LedgerWriter(store.records, epoch=1), LedgerWriter(store.records, epoch=1)
    one.append("run-1", line(0))
    await one.flush_all()
    other.append("run-1", line(1))
    with pytest.raises(SupersededError):
        await other.flush_all()
    assert await written(store) == ["0"]


async def test_each_leader_begins_a_new_epoch_and_the_former_leader_notices(
    store: Store,
) -> None:
    first = await begin_epoch(store.records, owner="a", now_s=1.0)
    await check_leads(store.records, first)
    second = await begin_epoch(store.records, owner="b", now_s=2.0)
    assert second == first + 1
    with pytest.raises(SupersededError):
        await check_leads(store.records, first)
    await check_leads(store.records, second)


class Network(MemoryRecords):
    """A store that answers nobody before so many have asked, and loses answers or refuses."""

    def __init__(self, together: int = 0) -> None:
        super().__init__()
        self._left = together
        self._all = asyncio.Event()
        self.refused = ""
        self.loses_answers = False

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        self._left -= 1
        if self._left <= 0:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 20)
        if self.refused and self.refused in key:
            raise StoreUnavailableError("not now")
        etag = await super().write(key, data, if_match=if_match)
        if self.loses_answers:
            raise StoreUnavailableError("no answer came")
        return etag


async def test_ledgers_are_flushed_concurrently_and_a_failure_affects_no_other() -> None:
    records = Network(together=16)
    records.refused = "run-7/"
    ledger = LedgerWriter(records, epoch=1)
    for n in range(16):
        ledger.append(f"run-{n}", line(n))
    with pytest.raises(StoreUnavailableError):
        await ledger.flush_all()
    assert len([key async for key in records.keys("runs/")]) == 15
    records.refused = ""
    await ledger.flush_all()
    [found] = (await read_segments(records, "run-7")).lines
    assert found == line(7)
    assert len([key async for key in records.keys("runs/")]) == 16


async def test_a_segment_whose_response_was_lost_is_sent_again_unchanged() -> None:
    records = Network()
    ledger = LedgerWriter(records, epoch=1)
    ledger.append("run-1", line(0))
    records.loses_answers = True
    with pytest.raises(StoreUnavailableError):
        await ledger.flush("run-1")
    ledger.append("run-1", line(1))
    records.loses_answers = False
    await ledger.flush("run-1")
    assert list((await read_segments(records, "run-1")).lines) == [line(0), line(1)]


async def test_flushing_all_ledgers_waits_for_a_flush_in_progress() -> None:
    records = Network(together=2)
    ledger = LedgerWriter(records, epoch=1)
    ledger.append("run-1", line(0))
    one = asyncio.create_task(ledger.flush("run-1"))
    await asyncio.sleep(0)
    everything = asyncio.create_task(ledger.flush_all())
    await asyncio.sleep(0)
    assert not everything.done()  # the accounts that follow count a line that is not durable yet
    await records.write("another", b"")
    await asyncio.gather(one, everything)
    assert len([key async for key in records.keys("runs/")]) == 1


async def test_two_leaders_with_the_same_owner_name_begin_two_epochs(store: Store) -> None:
    one = await begin_epoch(store.records, owner="host/1", now_s=1.0)
    other = await begin_epoch(store.records, owner="host/1", now_s=1.0)
    first, second = [await store.records.read(f"epochs/{epoch:08d}") for epoch in (one, other)]
    assert first is not None
    assert second is not None
    assert first.data != second.data  # a store across a network counts equal bytes as one's own


@pytest.mark.parametrize(
    "stray",
    ["epochs/notes.txt", "accounts/old", "learned/x", "ended/x", "taken/x", "runs/u/ledger/x"],
)
async def test_a_stray_object_does_not_prevent_a_start_and_is_named_once(
    stray: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = control_plane(tmp_path)
    await first.start()
    accepted = await first.services.admission.submit(
        Submission(workflow("w", {"steps": [{"name": "s", "uses": "test.noop"}]}))
    )
    first._books.ledger.append(accepted.uid, line(0))
    await first.stop()
    key = stray.replace("/u/", f"/{accepted.uid}/")
    await open_store(tmp_path / "store").records.write(key, b"\xffnot ours")
    again = control_plane(tmp_path)
    await again.start()
    try:
        assert again.services.epoch.number == 2
        assert accepted.uid in machine_of(again).state.runs
    finally:
        await again.stop()
    assert [r.levelname for r in caplog.records if key in r.message] == ["WARNING"]
