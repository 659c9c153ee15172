"""Waiting for a condition instead of for a time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], *, within_s: float = 400.0) -> None:
    """Returns when the condition holds; fails when it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - any condition, not only those with an event
            await asyncio.sleep(0.005)
