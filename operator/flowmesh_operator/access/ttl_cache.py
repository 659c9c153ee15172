"""Answers kept for seconds: bounded, and asked for once however many want them at a time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

AT_ONCE = 32
"""Questions under way; more wait, so that a flood of them does not become the API server's."""


class TtlCache(Generic[K, V]):
    """Answers by key."""

    def __init__(
        self,
        keep_s: Callable[[V], float],
        *,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes how long an answer counts.

        Args:
            keep_s: seconds for which an answer counts.
            most: how many are kept; the least recently used goes first.
            clock: seconds on any clock that does not step.
        """
        self._keep_s = keep_s
        self._most = most
        self._clock = clock
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)

    def __len__(self) -> int:
        """How many answers are kept."""
        return len(self._answers)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer for a key, asked for where none counts any more.

        An error is everybody's who waits for it, and is not kept.
        """
        kept = self._answers.get(key)
        if kept is not None and self._clock() < kept[0]:
            self._answers.move_to_end(key)
            return kept[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.create_task(self._ask(key, ask))
            self._asking[key] = asking
            asking.add_done_callback(lambda task: self._asked(key, task))
        # One who leaves does not take the answer away from the others.
        return await asyncio.shield(asking)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        async with self._gate:
            answer = await ask()
        self._answers[key] = (self._clock() + self._keep_s(answer), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer

    def _asked(self, key: K, task: "asyncio.Task[V]") -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # somebody was told, or nobody waits any more
