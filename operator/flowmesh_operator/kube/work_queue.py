"""A work queue of names to reconcile, as in client-go: no name is in it twice.

A name that is added while it is being processed is processed once more afterwards, never at the
same time. Controllers add a name for any reason; the reconciliation finds out what is needed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable


class WorkQueue:
    """Names in order of arrival."""

    def __init__(self) -> None:
        """Starts empty."""
        self._waiting: dict[str, None] = {}
        self._processing: set[str] = set()
        self._dirty: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def add(self, name: str) -> None:
        """Adds a name, unless it waits already."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if name in self._processing:
            self._dirty.add(name)
            return
        self._waiting[name] = None
        self._wake.set()

    def add_after(self, name: str, delay_s: float) -> None:
        """Adds a name after a delay, unless it is added before."""
        if name in self._waiting or name in self._dirty:
            return
        loop = asyncio.get_running_loop()
        known = self._timers.get(name)
        if known is not None and known.when() <= loop.time() + delay_s:
            return
        if known is not None:
            known.cancel()
        self._timers[name] = loop.call_later(delay_s, self.add, name)

    def __len__(self) -> int:
        """Returns the number of names that wait."""
        return len(self._waiting)

    async def serve(self, work: Callable[[str], Awaitable[None]]) -> None:
        """Processes names until cancelled; may run several times at once."""
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            name = next(iter(self._waiting))
            del self._waiting[name]
            self._processing.add(name)
            try:
                await work(name)
            finally:
                self._processing.discard(name)
                if name in self._dirty:
                    self._dirty.discard(name)
                    self.add(name)

    async def feed(self, names: AsyncIterator[str], *, as_one: str = "") -> None:
        """Adds every name of an iterator, or ``as_one`` for each of them, until cancelled."""
        async for name in names:
            self.add(as_one or name)
