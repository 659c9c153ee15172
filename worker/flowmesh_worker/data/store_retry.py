"""Retries of the worker's reads and writes while the store is unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowmesh_core.errors import StoreUnavailableError

_TRIES = 5
_FIRST_PAUSE_S = 0.2
Value = TypeVar("Value")


async def retry_while_unavailable(call: Callable[[], Awaitable[Value]]) -> Value:
    """Calls up to five times, over about three seconds, while the store is unavailable.

    Raises:
        StoreUnavailableError: the store was unavailable each time. Any other error is not retried.
    """
    pause_s = _FIRST_PAUSE_S
    for _ in range(_TRIES - 1):
        try:
            return await call()
        except StoreUnavailableError:
            await asyncio.sleep(pause_s)
            pause_s *= 2
    return await call()
