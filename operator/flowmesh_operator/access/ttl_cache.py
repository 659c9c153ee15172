"""A bounded cache whose entries expire; concurrent calls for one key share one request."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

AT_ONCE = 32
"""Requests at a time; more wait, so that a flood of callers does not reach the API server."""


class TtlCache(Generic[K, V]):
    """Values by key, each valid for a number of seconds that depends on the value."""

    def __init__(
        self,
        keep_s: Callable[[V], float],
        *,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts empty.

        Args:
            keep_s: returns the seconds for which a value is valid.
            most: largest number of entries; the least recently used is evicted first.
            clock: seconds on a monotonic clock.
        """
        self._ttl_s = keep_s
        self._max_entries = most
        self._clock = clock
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._requests: dict[K, asyncio.Task[V]] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)

    def __len__(self) -> int:
        """Returns the number of entries, expired ones too."""
        return len(self._answers)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Returns the value of a key; calls ``ask`` where no valid one is cached.

        An error of ``ask`` is raised in every waiting caller, and is not cached.
        """
        cached = self._answers.get(key)
        if cached is not None and self._clock() < cached[0]:
            self._answers.move_to_end(key)
            return cached[1]
        request = self._requests.get(key)
        if request is None:
            request = asyncio.create_task(self._fetch(key, ask))
            self._requests[key] = request
            request.add_done_callback(lambda task: self._on_done(key, task))
        # A caller that is cancelled must not cancel the request of the others.
        return await asyncio.shield(request)

    async def _fetch(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        async with self._gate:
            answer = await ask()
        self._answers[key] = (self._clock() + self._ttl_s(answer), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > self._max_entries:
            self._answers.popitem(last=False)
        return answer

    def _on_done(self, key: K, task: "asyncio.Task[V]") -> None:
        del self._requests[key]
        if not task.cancelled():
            task.exception()  # retrieved: asyncio logs the errors that no caller retrieves
