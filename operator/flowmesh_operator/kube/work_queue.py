"""A queue of names of things to look at: each waits once, and one at a time is looked at.

As in client-go: what is added while it is being looked at waits until that has ended. Controllers
add a name for whatever reason; what is to be done they find out when they look.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable


class WorkQueue:
    """Names in order of arrival."""

    def __init__(self) -> None:
        """Starts empty."""
        self._waiting: dict[str, None] = {}
        self._taken: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def add(self, name: str) -> None:
        """Adds a name; no matter where it waits already."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        if name in self._taken:
            self._again.add(name)
            return
        self._waiting[name] = None
        self._wake.set()

    def add_after(self, name: str, delay_s: float) -> None:
        """Adds a name later, unless it is added before."""
        if name in self._waiting or name in self._again:
            return
        loop = asyncio.get_running_loop()
        known = self._timers.get(name)
        if known is not None and known.when() <= loop.time() + delay_s:
            return
        if known is not None:
            known.cancel()
        self._timers[name] = loop.call_later(delay_s, self.add, name)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def serve(self, work: Callable[[str], Awaitable[None]]) -> None:
        """Takes names and does the work for each until cancelled; may run several times at once."""
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            name = next(iter(self._waiting))
            del self._waiting[name]
            self._taken.add(name)
            try:
                await work(name)
            finally:
                self._taken.discard(name)
                if name in self._again:
                    self._again.discard(name)
                    self.add(name)

    async def feed(self, names: AsyncIterator[str], *, as_one: str = "") -> None:
        """Adds every name that comes, or one name for all of them, until cancelled."""
        async for name in names:
            self.add(as_one or name)
