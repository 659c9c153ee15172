"""Sends many requests to a store concurrently, since each costs a round trip on a network."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 64

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def each_of(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yields items that are in memory, for :func:`in_batches`."""
    for item in items:
        yield item


async def in_batches(
    given: AsyncIterable[_Item], work: Callable[[_Item], Awaitable[_Result]]
) -> AsyncIterator[tuple[_Item, _Result]]:
    """Yields each item with its result, in order; ``AT_ONCE`` calls run concurrently.

    Raises:
        Exception: the first that ``work`` raised in a batch.
    """
    batch: list[_Item] = []
    async for one in given:
        batch.append(one)
        if len(batch) == AT_ONCE:
            for pair in await _results(batch, work):
                yield pair
            batch = []
    for pair in await _results(batch, work):
        yield pair


async def _results(
    batch: list[_Item], work: Callable[[_Item], Awaitable[_Result]]
) -> list[tuple[_Item, _Result]]:
    return list(zip(batch, await asyncio.gather(*map(work, batch)), strict=True))
