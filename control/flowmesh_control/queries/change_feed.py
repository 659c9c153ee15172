"""Who waits for changes of a run: watching clients are woken, at most so often."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

GAP_S = 0.2
"""A watcher is woken at most five times a second."""


class RunChangeFeed:
    """Wakes those who watch a run when the machine says that it has changed."""

    def __init__(self) -> None:
        """Starts without watchers."""
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._followers: list[_Follower] = []

    def changed(self, uid: str) -> None:
        """A run has changed; cheap, and cheaper where nobody watches."""
        watchers = self._watchers.get(uid)
        if watchers:
            for event in watchers:
                event.set()
        for follower in self._followers:
            follower.uids[uid] = None
            follower.wake.set()

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

    async def all(self) -> AsyncIterator[str]:
        """Yields the uid of every run that changes from now on, each once however often it did."""
        follower = _Follower()
        self._followers.append(follower)
        try:
            while True:
                await follower.wake.wait()
                follower.wake.clear()
                while follower.uids:
                    yield follower.uids.popitem()[0]
        finally:
            self._followers.remove(follower)


class _Follower:
    """Somebody who takes the changes of all runs."""

    def __init__(self) -> None:
        self.uids: dict[str, None] = {}
        self.wake = asyncio.Event()
