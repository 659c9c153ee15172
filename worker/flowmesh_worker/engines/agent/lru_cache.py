"""What tools make of data sets, kept for the next chunk: tables and indexes."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

_KEPT = 4
T = TypeVar("T")


class LruCache:
    """The last few things made, by what they were made of. What is in use outlives its place."""

    def __init__(self) -> None:
        """Holds nothing."""
        self._made: OrderedDict[Hashable, Any] = OrderedDict()
        self._making = asyncio.Lock()

    async def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under a key, or what ``make`` gives, in a thread of its own."""
        async with self._making:
            if key not in self._made:
                self._made[key] = await asyncio.to_thread(make)
            self._made.move_to_end(key)
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
            return cast(T, self._made[key])
