"""Sampled audits on a real control plane, with workers that speak the protocol by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.attacks.by_hand import HandWorker, Place, end_of, noop, place, until
from tests.flowmesh_control.fabric import machine_of

from flowmesh_api.v1.audit import AuditReport
from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy, Verify
from flowmesh_api.v1.withheld import WithheldPage
from flowmesh_core.protocol.messages import Assignment

GROUP = CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a",), verify=Verify(1.0))
Answer = Callable[[Assignment], str]


@pytest.fixture
async def there() -> AsyncIterator[Place]:
    async with place() as found:
        await found.control.services.policies.put(GROUP)
        yield found


@asynccontextmanager
async def answering(worker: HandWorker, value: str) -> AsyncIterator[set[str]]:
    """Lets a worker end each attempt with this value; yields the actions that it was given."""
    given: set[str] = set()

    async def answer() -> None:
        ended: set[str] = set()
        while True:
            await until(lambda: set(worker.assigned) - ended)
            new = [a for a in worker.assigned.values() if a.attempt_id not in ended]
            ended.update(a.attempt_id for a in new)
            given.update(a.action_id for a in new)
            await worker.sync(ended=tuple(end_of(a.attempt_id, a.action_id, value) for a in new))

    task = asyncio.create_task(answer())
    try:
        yield given
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reports(there: Place, count: int) -> list[AuditReport]:
    """The reports of audits, once there are so many that have ended."""

    def ended() -> bool:
        runs = there.control.services.views.summaries()
        return sum(bool(r.audit_of) and bool(r.ended_s) for r in runs) >= count

    await until(ended)
    return msgspec.json.decode(await there.get("/v1/audits"), type=list[AuditReport])


async def withheld(there: Place) -> WithheldPage:
    return msgspec.json.decode(await there.get("/v1/withheld"), type=WithheldPage)


async def made_by(there: Place, worker: HandWorker, value: str, *others: tuple[str, str]) -> str:
    """Runs a workflow on this worker alone; the others, name and pool, join before it ends."""
    uid = await there.submit("first", noop())
    (one,) = await worker.given()
    for name, pool in others:
        await there.join(name, pool)
    await worker.sync(ended=(end_of(one.attempt_id, one.action_id, value),))
    await there.ended(uid)
    return uid


async def test_a_liar_is_found_by_two_others_and_all_that_it_published_is_withheld(
    there: Place,
) -> None:
    liar = await there.join("liar")
    uid = await made_by(there, liar, "a lie", ("b", "good"), ("c", "good"))
    _, second, third = there.workers
    async with answering(second, "made"), answering(third, "made"), answering(liar, "a lie"):
        first_round, second_round = await reports(there, 2)
    assert (first_round.order.sampled, first_round.counts["differs"]) == (True, 1)
    assert second_round.findings[0].check.doubted is not None
    page = await withheld(there)
    assert [r.made_by.worker for r in page.results] == ["good-liar"]
    assert machine_of(there.control).state.distrusted == {("good", "good-liar")}
    book = msgspec.json.decode(await there.get("/v1/fabric"))
    parts = ("receipts_nanousd", "fabric_nanousd", "unsettled_nanousd")
    assert sum(book[part] for part in parts) == book["bill_nanousd"]
    runs = there.control.services.views.summaries()
    assert {r.paid_nanousd for r in runs if r.audit_of} == {0}
    again = await there.submit("second", noop())
    async with answering(second, "made"), answering(third, "made"):
        assert (await there.ended(again)).hits == 0
    assert uid != again


async def test_a_second_worker_that_lies_is_the_odd_one(there: Place) -> None:
    honest = await there.join("a")
    await made_by(there, honest, "made", ("liar", "good"))
    liar = there.workers[1]
    await liar.given()
    third = await there.join("c")
    async with answering(liar, "a lie"), answering(third, "made"):
        await reports(there, 2)
    assert machine_of(there.control).state.distrusted == {("good", "good-liar")}
    assert (await withheld(there)).count == 0


async def test_where_no_two_agree_the_result_is_withheld_and_its_class_quarantined(
    there: Place,
) -> None:
    first = await there.join("a")
    await made_by(there, first, "one", ("b", "good"))
    second = there.workers[1]
    await second.given()
    third = await there.join("c")
    async with answering(second, "two"), answering(third, "three"):
        await reports(there, 2)
    assert machine_of(there.control).state.distrusted == set()
    assert (await withheld(there)).count == 1
    assert len(msgspec.json.decode(await there.get("/v1/quarantine"))) == 1


async def test_without_a_third_worker_the_result_is_withheld_and_none_is_cordoned(
    there: Place,
) -> None:
    liar = await there.join("liar")
    await made_by(there, liar, "a lie", ("b", "good"))
    second = there.workers[1]
    async with answering(second, "made") as given:
        (report,) = await reports(there, 1)
    assert report.counts["differs"] == 1
    assert len(given) == 1
    page = await withheld(there)
    assert [r.made_by.worker for r in page.results] == ["good-liar"]
    assert machine_of(there.control).state.distrusted == set()


async def test_one_worker_alone_is_not_asked_again(there: Place) -> None:
    alone = await there.join("alone")
    await made_by(there, alone, "made")
    assert len(alone.assigned) == 1
    assert not any(r.audit_of for r in there.control.services.views.summaries())


async def test_another_pool_repeats_it_where_there_is_one(there: Place) -> None:
    worker = await there.join("a")
    await made_by(there, worker, "made", ("b", "good"), ("c", "good-too"))
    _, same_pool, other_pool = there.workers
    async with answering(same_pool, "made") as same, answering(other_pool, "made") as other:
        (report,) = await reports(there, 1)
    assert report.counts["same"] == 1
    assert (len(same), len(other)) == (0, 1)
    assert (await withheld(there)).count == 0


async def test_without_a_sample_nothing_is_made_again(there: Place) -> None:
    await there.control.services.policies.put(
        CachePolicy("g", Sharing.GROUP, "x", namespaces=("team-a",))
    )
    worker = await there.join("a")
    await made_by(there, worker, "made", ("b", "good"))
    assert not any(r.audit_of for r in there.control.services.views.summaries())
