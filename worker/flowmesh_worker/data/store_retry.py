"""Trying again while the store does not answer, as everything that reads or writes it does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowmesh_core.errors import StoreUnavailableError

_TRIES = 5
_FIRST_PAUSE_S = 0.2
Value = TypeVar("Value")


async def patiently(call: Callable[[], Awaitable[Value]]) -> Value:
    """Calls up to five times over about three seconds.

    Raises:
        StoreUnavailableError: it never answered; any other error comes at once.
    """
    pause_s = _FIRST_PAUSE_S
    for _ in range(_TRIES - 1):
        try:
            return await call()
        except StoreUnavailableError:
            await asyncio.sleep(pause_s)
            pause_s *= 2
    return await call()
