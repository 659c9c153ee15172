"""A fixed number of tasks that do the work outside: look-ups, publications, checks.

No task is made for a job. A store that answers without waiting (memory, a directory) is served by
one hand in one go; a store across the network keeps all of them busy. A job that finds the store
unavailable is tried again until it answers: nothing else could be done meanwhile.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from flowmesh_core.errors import FlowMeshError, StoreUnavailableError

HANDS = 64
SLICE_S = 0.005
"""After this long without waiting for anything a hand lets others run."""
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0

Job = Callable[[Any], Awaitable[None]]


class Hands:
    """Does jobs in order of arrival, at most so many at once."""

    def __init__(
        self,
        *,
        failed: Callable[[BaseException], None],
        waits: Callable[[FlowMeshError], None],
        count: int = HANDS,
    ) -> None:
        """Takes the number of hands and who is told.

        Args:
            failed: told of an error that a job does not handle.
            waits: told why a job is tried again.
            count: how many hands.
        """
        self._failed = failed
        self._waits = waits
        self._count = count
        self._jobs: deque[tuple[Job, Any]] = deque()
        self._resting: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._slice_end = 0.0
        self.retries = 0

    def start(self) -> None:
        """Makes the hands; they live until :meth:`stop`."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._count)]

    async def stop(self) -> None:
        """Ends the hands; jobs not done are dropped (they are repeatable)."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def give(self, job: Job, argument: Any) -> None:
        """Queues ``job(argument)``."""
        self._jobs.append((job, argument))
        while self._resting:
            hand = self._resting.pop()
            if not hand.done():
                hand.set_result(None)
                return

    @property
    def backlog(self) -> int:
        """How many jobs nobody has begun."""
        return len(self._jobs)

    async def _work(self) -> None:
        while True:
            while self._jobs:
                job, argument = self._jobs.popleft()
                await self._do(job, argument)
                if time.monotonic() > self._slice_end:
                    await asyncio.sleep(0)
                    self._slice_end = time.monotonic() + SLICE_S
            rest = asyncio.get_running_loop().create_future()
            self._resting.append(rest)
            await rest

    async def _do(self, job: Job, argument: Any) -> None:
        wait_s = FIRST_RETRY_S
        while True:
            try:
                await job(argument)
            except StoreUnavailableError as e:
                self.retries += 1
                if e.where or e.remedy:  # not where it waits for other jobs of ours
                    self._waits(e)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LAST_RETRY_S)
            except Exception as e:  # told, and ends the control plane: recovery is reuse
                self._failed(e)
                return
            else:
                return
