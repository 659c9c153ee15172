"""Ends a stream whose client takes nothing of it for too long."""

import asyncio


class SlowClientTimer:
    """Watches the writes of one stream with one timer, so that a write costs next to nothing."""

    __slots__ = ("_blocked_since_s", "_limit_s", "_loop", "_timeout", "_timer")

    def __init__(self, timeout: asyncio.Timeout, limit_s: float) -> None:
        """Begins to watch.

        Args:
            timeout: of the block that writes; it expires when a write takes too long.
            limit_s: how long one write may take.
        """
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._limit_s = limit_s
        self._blocked_since_s = 0.0
        self._timer = self._loop.call_later(limit_s, self._check)

    def __enter__(self) -> None:
        """A write begins."""
        self._blocked_since_s = self._loop.time()

    def __exit__(self, *_: object) -> None:
        """A write has ended."""
        self._blocked_since_s = 0.0

    def close(self) -> None:
        """Ends the watch."""
        self._timer.cancel()

    def _check(self) -> None:
        now_s = self._loop.time()
        due_s = (self._blocked_since_s or now_s) + self._limit_s
        if now_s < due_s:
            self._timer = self._loop.call_at(due_s, self._check)
        else:
            self._timeout.reschedule(now_s)
