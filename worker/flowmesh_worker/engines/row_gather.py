"""Runs the rows of one action concurrently, and cancels all of them if one fails."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def all_or_none(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs the parts concurrently.

    Returns:
        Their results, in order.

    Raises:
        Exception: the first failure, unchanged, after the other parts were cancelled.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
