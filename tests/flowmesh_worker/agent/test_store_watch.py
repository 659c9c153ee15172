"""A worker that cannot reach the store says so, is not Ready, and looks again by itself."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flowmesh_core.errors import StoreError, StoreUnavailableError
from flowmesh_store.reachability import look_at
from flowmesh_store.store import open_store
from flowmesh_worker.agent import store_watch
from flowmesh_worker.agent.store_watch import UNANSWERED_MAX, StoreWatch

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

REFUSED = StoreError("the URL was refused (403)", remedy="check the account")
SILENT = StoreUnavailableError("the store did not answer")


class Looks:
    """A store whose state the test sets."""

    def __init__(self, failure: StoreError | None = None) -> None:
        self.failure = failure
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "RETRY_S", 0.01)
    monkeypatch.setattr(store_watch, "LOOK_EVERY_S", 0.01)


@pytest.mark.parametrize("failure", [REFUSED, SILENT])
async def test_the_first_look_counts_whatever_fails(failure: StoreError) -> None:
    watch = StoreWatch(Looks(failure))
    await watch.look()
    assert watch.problem == str(failure)


async def test_a_store_that_is_restarted_is_no_problem_and_one_that_stays_away_is(
    quick: None,
) -> None:
    looks, found = Looks(), asyncio.Event()
    watch = StoreWatch(looks)
    await watch.look()
    problems: list[str] = []

    def looked() -> None:
        problems.append(watch.problem)
        if len(problems) == UNANSWERED_MAX - 1:
            looks.failure = None
        if len(problems) == UNANSWERED_MAX:
            looks.failure = SILENT
        if watch.problem:
            found.set()

    looks.failure = SILENT
    task = asyncio.create_task(watch.run(looked))
    await asyncio.wait_for(found.wait(), 180)
    task.cancel()
    assert problems == [""] * (2 * UNANSWERED_MAX - 1) + [str(SILENT)]


async def test_after_a_failed_attempt_it_looks_at_once() -> None:
    looks, looked = Looks(), asyncio.Event()
    watch = StoreWatch(looks)
    await watch.look()
    task = asyncio.create_task(watch.run(looked.set))
    looks.failure = REFUSED
    watch.look_soon()
    await asyncio.wait_for(looked.wait(), 180)
    task.cancel()
    assert (looks.count, watch.problem) == (2, str(REFUSED))


async def test_a_look_that_hangs_counts_as_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "LOOK_WITHIN_S", 0.01)
    watch = StoreWatch(asyncio.Event().wait)  # type: ignore[arg-type]
    await watch.look()
    assert "did not answer within" in watch.problem


async def test_a_directory_that_is_gone_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    await look_at(store)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailableError, match="the directory is gone"):
        await look_at(store)


async def test_a_worker_joins_with_its_problem_and_is_ready_once_it_is_over(
    world: "World", quick: None, tmp_path: Path
) -> None:
    looks, gateway, ready = Looks(REFUSED), world.gateway, tmp_path / "health" / "ready"
    await world.worker(look=looks, health_dir=tmp_path / "health")
    assert gateway.hellos[0].store_problem == str(REFUSED)
    await gateway.until(lambda: len(gateway.syncs) > 2)
    assert gateway.syncs[-1].store_problem == str(REFUSED)
    assert not ready.exists()
    looks.failure = None
    await gateway.until(lambda: not gateway.syncs[-1].store_problem)
    await gateway.until(ready.exists)
    looks.failure = REFUSED
    await gateway.until(lambda: gateway.syncs[-1].store_problem)
    await gateway.until(lambda: not ready.exists())


async def test_a_worker_with_attempts_stays_ready_until_they_have_ended(
    world: "World", quick: None, tmp_path: Path
) -> None:
    looks, gateway, ready = Looks(), world.gateway, tmp_path / "health" / "ready"
    agent = await world.worker(look=looks, health_dir=tmp_path / "health")
    a = world.assignment("test.sleep", params={"seconds": 300.0})
    await gateway.assign(a)
    await gateway.phase(a.attempt_id, "running")
    looks.failure = REFUSED
    await gateway.until(lambda: gateway.syncs[-1].store_problem)
    assert agent.machine.state.attempts
    assert ready.exists()
    await gateway.desire(cancel=(a.attempt_id,))
    await gateway.until(lambda: not ready.exists())
