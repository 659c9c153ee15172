"""A small cache of the tables and indexes that tools build, reused by the next chunk."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

_ENTRIES_MAX = 4
T = TypeVar("T")


class LruCache:
    """The most recently used values by key. A value in use stays valid after its eviction."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = asyncio.Lock()

    async def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns a key's value; if it is missing, calls ``make`` in a thread and stores it."""
        async with self._lock:
            if key not in self._entries:
                self._entries[key] = await asyncio.to_thread(make)
            self._entries.move_to_end(key)
            while len(self._entries) > _ENTRIES_MAX:
                self._entries.popitem(last=False)
            return cast(T, self._entries[key])
