"""The cache of answers: lifetime, size and keys."""

import asyncio

import pytest

from flowmesh_operator.access.ttl_cache import TtlCache


class Asked:
    """A source that counts its calls and answers when the test allows it."""

    def __init__(self) -> None:
        self.times = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self) -> int:
        self.times += 1
        await self.open.wait()
        return self.times


async def test_a_cached_answer_is_used_until_it_expires() -> None:
    now = [0.0]
    answers: TtlCache[str, int] = TtlCache(
        lambda v: 10.0 if v == 1 else 2.0, most=8, clock=lambda: now[0]
    )
    ask = Asked()
    found = []
    for at_s in (0.0, 9.9, 10.0, 11.9, 12.0):
        now[0] = at_s
        found.append(await answers.get("k", ask))
    assert found == [1, 1, 2, 2, 3]


async def test_concurrent_callers_share_one_request_and_a_cancelled_one_does_not_abort_it() -> None:
    answers: TtlCache[str, int] = TtlCache(lambda _: 10.0, most=8)
    ask = Asked()
    ask.open.clear()
    waiting = [asyncio.create_task(answers.get("k", ask)) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    ask.open.set()
    assert await asyncio.gather(*waiting[1:]) == [1] * 19
    assert ask.times == 1


async def test_an_error_is_raised_in_all_callers_and_not_cached() -> None:
    answers: TtlCache[str, int] = TtlCache(lambda _: 10.0, most=8)

    async def fail() -> int:
        raise OSError("away")

    for ended in await asyncio.gather(
        *(answers.get("k", fail) for _ in range(3)), return_exceptions=True
    ):
        assert isinstance(ended, OSError)
    assert await answers.get("k", Asked()) == 1
    with pytest.raises(OSError, match="away"):
        await answers.get("other", fail)


async def test_the_least_recently_used_answer_is_evicted_first() -> None:
    answers: TtlCache[int, int] = TtlCache(lambda _: 10.0, most=3)
    asked = {key: Asked() for key in range(4)}
    for key in (0, 1, 2, 0, 3):
        await answers.get(key, asked[key])
    assert len(answers) == 3
    await answers.get(0, asked[0])
    await answers.get(1, asked[1])
    assert (asked[0].times, asked[1].times) == (1, 2)
