"""Who waits for changes of a run: watching clients are woken, at most so often."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

GAP_S = 0.2
"""A watcher is woken at most five times a second."""


class Changes:
    """Wakes those who watch a run when the machine says that it has changed."""

    def __init__(self) -> None:
        """Starts without watchers."""
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def changed(self, uid: str) -> None:
        """A run has changed; cheap, and cheaper where nobody watches."""
        watchers = self._watchers.get(uid)
        if watchers:
            for event in watchers:
                event.set()

    async def of(self, uid: str) -> AsyncIterator[None]:
        """Yields at once, and then after changes, until the caller stops."""
        event = asyncio.Event()
        self._watchers[uid].add(event)
        try:
            while True:
                yield
                await asyncio.sleep(GAP_S)
                await event.wait()
                event.clear()
        finally:
            self._watchers[uid].discard(event)
            if not self._watchers[uid]:
                del self._watchers[uid]
