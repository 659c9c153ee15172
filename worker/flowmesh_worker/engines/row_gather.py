"""Work on the rows of one action at once, and all of it given up where a part fails."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def all_or_none(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs the parts at once.

    Returns:
        What they gave, in order.

    Raises:
        Exception: the first failure as it is; the others are stopped first.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
