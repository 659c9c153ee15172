"""Places in an engine: calls take those of rows, which are computed again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from flowmesh_core.protocol.serving import TokenTargets
from flowmesh_core.serving.queue.step_profile import ENOUGH_STEPS, TOKEN_MARGIN, StepFit
from flowmesh_worker.engine_api import CallRefusedError
from flowmesh_worker.engines.llm.sequence_places import SequencePlaces
from flowmesh_worker.engines.llm.vllm_backend import _Growth

STEP = StepFit(0.010, 0.005, 0.001)


def measured(places: SequencePlaces, *sizes: tuple[int, int]) -> SequencePlaces:
    """Has the places see steps of these sizes."""
    for _ in range(4 * ENOUGH_STEPS):
        for sequences, prompts in sizes:
            places.observe(sequences, prompts, STEP.seconds(sequences, prompts))
    return places


@pytest.fixture
def places() -> SequencePlaces:
    """Places of an engine whose steps are measured, and of which three keep 28 ms."""
    found = measured(SequencePlaces(64), (1, 0), (8, 0))
    found.use_targets(TokenTargets(tpot_s=0.0279), lambda _: None)
    assert found.sequences_max == 3
    return found


class Row:
    """A row that ends when it is told to.

    Attributes:
        begun: how often it has begun; ``stopped`` how often it was stopped.
    """

    def __init__(self, places: SequencePlaces, name: str) -> None:
        self.begun = self.stopped = 0
        self._may_end = asyncio.Event()
        self.task = asyncio.create_task(places.of_row(name, 0, self._compute))

    async def _compute(self) -> int:
        self.begun += 1
        try:
            await self._may_end.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return self.begun

    async def end(self) -> int:
        self._may_end.set()
        return await self.task


async def settled() -> None:
    """Lets every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def call(places: SequencePlaces, name: str, sequences: int = 1) -> AsyncIterator[None]:
    async with asyncio.timeout(5), places.of_call(name, 10, sequences):
        yield


def test_the_number_of_sequences_follows_the_steps_and_is_told() -> None:
    told: list[int] = []
    places = SequencePlaces(64)
    places.use_targets(TokenTargets(tpot_s=0.05), told.append)
    measured(places, (1, 0), (2, 0), (4, 0), (8, 0))
    assert told[0] == 2
    assert told[-1] == max(n for n in range(65) if STEP.seconds(n) <= TOKEN_MARGIN * 0.05)
    places.use_targets(TokenTargets(), told.append)
    assert told[-1] == 64


async def test_without_targets_rows_and_calls_all_run() -> None:
    places = SequencePlaces(4)
    rows = [Row(places, f"r{n}") for n in range(9)]
    await settled()
    async with call(places, "c"):
        assert [row.begun for row in rows] == [1] * 9
    assert [await row.end() for row in rows] == [1] * 9


async def test_a_call_takes_the_place_of_the_newest_row_which_begins_again(
    places: SequencePlaces,
) -> None:
    rows = [Row(places, f"r{n}") for n in range(4)]
    await settled()
    assert [row.begun for row in rows] == [1, 1, 1, 0]
    async with call(places, "c"):
        await settled()
        assert [row.stopped for row in rows] == [0, 0, 1, 0]
    await settled()
    assert [row.begun for row in rows] == [1, 1, 2, 0]
    assert [await row.end() for row in rows] == [1, 1, 2, 1]


async def test_rows_run_to_their_end_beside_calls_without_an_end(places: SequencePlaces) -> None:
    rows = [Row(places, f"r{n}") for n in range(4)]
    await settled()
    for number in range(40):
        async with call(places, f"c{number}"):
            await settled()
    assert rows[0].stopped == rows[1].stopped == 0
    assert [await row.end() for row in rows[:2]] == [1, 1]
    for row in rows[2:]:
        await row.end()


async def test_a_call_waits_while_calls_have_all_places(places: SequencePlaces) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for name in "abc":
            await stack.enter_async_context(call(places, name))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), call(places, "d"):
                pass
    async with call(places, "d", 8):  # more than all, alone
        pass


async def test_a_cancelled_row_ends_and_frees_its_place(places: SequencePlaces) -> None:
    rows = [Row(places, f"r{n}") for n in range(5)]
    await settled()
    rows[0].task.cancel()
    rows[4].task.cancel()
    for row in (rows[0], rows[4]):
        with pytest.raises(asyncio.CancelledError):
            await row.task
    await settled()
    assert [row.begun for row in rows] == [1, 1, 1, 1, 0]
    for row in rows[1:4]:
        await row.end()


async def test_a_row_that_is_cancelled_as_it_is_stopped_ends(places: SequencePlaces) -> None:
    rows = [Row(places, f"r{n}") for n in range(3)]
    await settled()
    async with call(places, "c"):
        rows[2].task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rows[2].task
    for row in rows[:2]:
        await row.end()


async def test_a_failure_of_a_row_is_its_own(places: SequencePlaces) -> None:
    async def fail() -> None:
        raise ValueError("the row")

    with pytest.raises(ValueError, match="the row"):
        await places.of_row("r", 0, fail)
    async with call(places, "c", 3):
        pass


@contextlib.contextmanager
def waiting(places: SequencePlaces, prompts: int) -> Iterator[None]:
    places.prompts["before"] = prompts
    yield
    places.first_token("before")


def test_a_prompt_is_refused_where_those_before_it_make_it_late() -> None:
    """The oracle is the measured line itself."""
    places = measured(SequencePlaces(64), (1, 0), (8, 0), (1, 100))
    places.use_targets(TokenTargets(ttft_s=0.5), lambda _: None)
    for before in (1, 200, 300, 400, 500):
        for own in (10, 50, 500):
            is_late = STEP.seconds(0, before + own) > TOKEN_MARGIN * 0.5
            with waiting(places, before):
                expectation: Callable[[], contextlib.AbstractContextManager[object]] = (
                    lambda: pytest.raises(CallRefusedError)
                ) if is_late else contextlib.nullcontext  # fmt: skip
                with expectation():
                    places.require_in_time(own)


def test_a_prompt_with_none_before_it_is_taken_however_long_it_is() -> None:
    places = measured(SequencePlaces(64), (1, 0), (8, 0), (1, 100))
    places.use_targets(TokenTargets(ttft_s=0.1), lambda _: None)
    places.require_in_time(10_000)


def test_nothing_is_refused_before_steps_are_measured() -> None:
    places = SequencePlaces(64)
    places.use_targets(TokenTargets(ttft_s=0.1), lambda _: None)
    with waiting(places, 1000):
        places.require_in_time(1000)


def test_tokens_of_a_row_that_begins_again_are_reported_once() -> None:
    told: list[int] = []
    growth = _Growth(told.append)
    for tries in ((3, 4), (2, 2, 2), (7, 5)):
        add = growth.begin()
        for tokens in tries:
            add(tokens)
    assert told == [3, 4, 5]
