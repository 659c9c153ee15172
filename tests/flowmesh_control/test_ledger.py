import pytest

from flowmesh_control.epochs import SupersededError, begin_epoch, check_leads
from flowmesh_control.ledger import Ledger, read_segments
from flowmesh_core.run.ledger import Line, VerdictLine
from flowmesh_store.store import Store


def line(n: int) -> Line:
    return VerdictLine(time_s=float(n), phase="Running", message=str(n))


async def written(store: Store, uid: str = "run-1") -> list[str]:
    return [
        found.message
        for found in (await read_segments(store.records, uid)).lines
        if isinstance(found, VerdictLine)
    ]


async def test_lines_are_read_back_in_the_order_they_were_appended(store: Store) -> None:
    ledger = Ledger(store.records, epoch=1)
    for n in range(3):
        ledger.append("run-1", line(n))
    await ledger.flush("run-1")
    ledger.append("run-1", line(3))
    assert await written(store) == ["0", "1", "2"]
    await ledger.flush_all()
    assert await written(store) == ["0", "1", "2", "3"]


async def test_a_flush_without_new_lines_writes_nothing(store: Store) -> None:
    ledger = Ledger(store.records, epoch=1)
    ledger.append("run-1", line(0))
    await ledger.flush("run-1")
    await ledger.flush("run-1")
    await ledger.flush("run-2")
    assert [k async for k in store.records.keys("runs/")] == ["runs/run-1/ledger/00000001-00000001"]


async def test_a_later_epoch_takes_up_what_was_written_before(store: Store) -> None:
    first = Ledger(store.records, epoch=1)
    first.append("run-1", line(0))
    await first.flush_all()
    second = Ledger(store.records, epoch=2)
    assert len(await second.open("run-1")) == 1
    second.append("run-1", line(1))
    await second.flush_all()
    assert await written(store) == ["0", "1"]


async def test_what_a_former_leader_writes_after_it_was_superseded_does_not_count(
    store: Store,
) -> None:
    first = Ledger(store.records, epoch=1)
    first.append("run-1", line(0))
    await first.flush_all()
    second = Ledger(store.records, epoch=3)
    await second.open("run-1")
    first.append("run-1", line(666))
    await first.flush_all()
    unseen = Ledger(store.records, epoch=2)
    unseen.append("run-1", line(667))
    await unseen.flush_all()
    second.append("run-1", line(1))
    await second.flush_all()
    assert await written(store) == ["0", "1"]
    third = Ledger(store.records, epoch=4)
    assert len(await third.open("run-1")) == 2


async def test_two_writers_of_one_epoch_cannot_both_write(store: Store) -> None:
    one, other = Ledger(store.records, epoch=1), Ledger(store.records, epoch=1)
    one.append("run-1", line(0))
    await one.flush_all()
    other.append("run-1", line(1))
    with pytest.raises(SupersededError):
        await other.flush_all()
    assert await written(store) == ["0"]


async def test_each_leader_begins_an_epoch_of_its_own_and_the_former_one_notices(
    store: Store,
) -> None:
    first = await begin_epoch(store.records, owner="a", now_s=1.0)
    await check_leads(store.records, first)
    second = await begin_epoch(store.records, owner="b", now_s=2.0)
    assert second == first + 1
    with pytest.raises(SupersededError):
        await check_leads(store.records, first)
    await check_leads(store.records, second)
