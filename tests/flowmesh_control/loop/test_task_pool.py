"""Store work that is refused takes no turn while it waits, and errors of the pool are reported."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.flowmesh_control.waiting import until

from flowmesh_control.loop import task_pool
from flowmesh_control.loop.task_pool import TaskPool
from flowmesh_core.errors import StoreUnavailableError

COUNT = 2


def nothing(_: object) -> None: ...


@asynccontextmanager
async def pool(
    failed: Callable[[BaseException], None] = nothing,
    weight: Callable[[str], float] = lambda tenant: 1.0,
) -> AsyncIterator[TaskPool]:
    found = TaskPool(failed=failed, waits=nothing, weight=weight, count=COUNT)
    found.start()
    try:
        yield found
    finally:
        await found.stop()


async def test_jobs_that_wait_for_a_retry_take_no_turn_of_their_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_pool, "FIRST_RETRY_S", 3600.0)
    refused, done = list[int](), asyncio.Event()

    async def refuse(number: int) -> None:
        refused.append(number)
        raise StoreUnavailableError("no space is left")

    async def serve(_: object) -> None:
        done.set()

    async with pool() as tasks:
        for number in range(3 * COUNT):
            tasks.submit(refuse, number, ("a",))
        tasks.submit(serve, None, ("a",))
        await asyncio.wait_for(done.wait(), 10)
    assert refused == list(range(3 * COUNT))


async def test_a_retried_job_is_queued_behind_untried_jobs_of_its_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_pool, "FIRST_RETRY_S", 0.0)
    monkeypatch.setattr(task_pool, "LAST_RETRY_S", 0.0)
    order = list[str]()
    gates = {name: asyncio.Event() for name in ("one", "two")}

    async def work(name: str) -> None:
        order.append(name)
        if name == "refused" and order.count(name) == 1:
            raise StoreUnavailableError("away")
        if name in gates:
            await gates[name].wait()

    async with pool() as tasks:
        for name in ("refused", "one", "two", "three"):
            tasks.submit(work, name, ("a",))
        await until(lambda: tasks.backlog == 2 and "two" in order, within_s=10)
        gates["one"].set()
        await until(lambda: order.count("refused") == 2, within_s=10)
        gates["two"].set()
    assert order == ["refused", "one", "two", "three", "refused"]


def test_the_more_jobs_are_refused_for_long_the_less_often_each_is_tried() -> None:
    many = int(10 * task_pool.LAST_RETRY_S * task_pool.RETRIES_PER_S)
    assert task_pool.retry_delay_s(task_pool.FIRST_RETRY_S, many) == task_pool.FIRST_RETRY_S
    assert task_pool.retry_delay_s(task_pool.LAST_RETRY_S, 1) == task_pool.LAST_RETRY_S
    assert task_pool.retry_delay_s(task_pool.LAST_RETRY_S, many) == 10 * task_pool.LAST_RETRY_S


async def test_an_error_outside_a_job_is_reported() -> None:
    failures = list[BaseException]()
    weights = {"a": 1.0}

    async def work(_: object) -> None:
        weights["a"] = 0.0

    async with pool(failures.append, weights.__getitem__) as tasks:
        tasks.submit(work, None, ("a",))
        tasks.submit(work, None, ("a",))
        tasks.submit(work, None, ("a",))
        await until(lambda: failures, within_s=10)
    assert "weight" in str(failures[0])


async def test_a_job_may_be_done_at_once_and_its_error_is_reported() -> None:
    done, failures = list[int](), list[BaseException]()

    def work(number: int) -> None:
        done.append(number)
        if number == 1:
            raise ValueError("wrong")

    async with pool(failures.append) as tasks:
        for number in range(4):
            tasks.submit(work, number, ("a",))
        await until(lambda: len(done) == 4, within_s=10)
    assert done == [0, 1, 2, 3]
    assert [str(e) for e in failures] == ["wrong"]


@pytest.mark.parametrize("spread", [False, True])
async def test_jobs_that_wait_run_side_by_side_however_they_come(spread: bool) -> None:
    running, done, go = 0, list[int](), asyncio.Event()

    async def wait(number: int) -> None:
        nonlocal running
        running += 1
        await go.wait()
        done.append(number)

    async with pool() as tasks:
        for number in range(2 * COUNT):
            tasks.submit(wait, number, ("a",))
            if spread:
                await asyncio.sleep(0)
        await until(lambda: running == COUNT, within_s=10)
        go.set()
        await until(lambda: len(done) == 2 * COUNT, within_s=10)
    assert sorted(done) == list(range(2 * COUNT))


async def test_a_job_that_another_submits_before_it_waits_is_taken_by_a_further_task() -> None:
    done = asyncio.Event()

    async def first(_: object) -> None:
        tasks.submit(second, None, ("a",))
        await done.wait()

    def second(_: object) -> None:
        done.set()

    async with pool() as tasks:
        await until(lambda: len(tasks._resting) == COUNT, within_s=10)
        tasks.submit(first, None, ("a",))
        await asyncio.wait_for(done.wait(), 10)


async def test_a_job_that_waits_wakes_a_task_for_the_one_behind_it() -> None:
    begun, go = list[int](), asyncio.Event()

    async def wait(number: int) -> None:
        begun.append(number)
        await go.wait()

    async with pool() as tasks:
        for _ in range(3):  # all tasks rest
            await asyncio.sleep(0)
        tasks.submit(wait, 1, ("a",))
        tasks.submit(wait, 2, ("a",))
        await until(lambda: begun == [1, 2], within_s=10)
        go.set()
