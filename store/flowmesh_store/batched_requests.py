"""Many requests to a store, some side by side: across a network each would cost a round trip."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import TypeVar

AT_ONCE = 64

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


async def in_batches(
    given: AsyncIterable[_Given], work: Callable[[_Given], Awaitable[_Found]]
) -> AsyncIterator[tuple[_Given, _Found]]:
    """What is given, in order, each with its answer; ``AT_ONCE`` are asked for side by side.

    Raises:
        Exception: the first that ``work`` raised in a batch.
    """
    batch: list[_Given] = []
    async for one in given:
        batch.append(one)
        if len(batch) == AT_ONCE:
            for pair in await _answered(batch, work):
                yield pair
            batch = []
    for pair in await _answered(batch, work):
        yield pair


async def _answered(
    batch: list[_Given], work: Callable[[_Given], Awaitable[_Found]]
) -> list[tuple[_Given, _Found]]:
    return list(zip(batch, await asyncio.gather(*map(work, batch)), strict=True))
