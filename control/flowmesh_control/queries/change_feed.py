"""Wakes clients that watch a run, and the operator, when runs change."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

GAP_S = 0.2
"""A watcher is woken at most five times a second."""


class RunChangeFeed:
    """Wakes the watchers of a run when the machine reports that it changed."""

    def __init__(self) -> None:
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._followers: list[_Follower] = []

    def changed(self, uid: str) -> None:
        """Wakes the watchers of a run; cheap, as it is called for every change."""
        watchers = self._watchers.get(uid)
        if watchers:
            for event in watchers:
                event.set()
        for follower in self._followers:
            follower.uids[uid] = None
            follower.wake.set()

    async def of(self, uid: str) -> AsyncIterator[None]:
        """Yields at once and then after changes, until the caller stops iterating."""
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
        """Yields the uid of every run that changes from now on; pending changes are merged."""
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
    """A subscriber to the changes of all runs.

    Attributes:
        uids: the runs that have changed, as an ordered set.
        wake: set while ``uids`` may have entries.
    """

    def __init__(self) -> None:
        self.uids: dict[str, None] = {}
        self.wake = asyncio.Event()
