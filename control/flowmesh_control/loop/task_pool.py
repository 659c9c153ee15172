"""A pool with a fixed number of asyncio tasks for store jobs: look-ups, publications, checks.

No asyncio task is created per job. With a store that answers without waiting (memory, a directory)
one task of the pool does all jobs in a row; a store across the network keeps all of them busy,
since a task that is about to wait wakes another one for the jobs behind its own.
Tenants are served in turn (``fair_queue``), so a job waits only for jobs of others that are
running. A job that finds the store unavailable is retried until the store answers; while it waits
it occupies no task, so jobs of other tenants are not delayed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_control.errors import EvaluatorUnavailableError
from flowmesh_control.loop.fair_queue import FairQueue
from flowmesh_core.errors import FlowMeshError, StoreUnavailableError

POOL_TASKS = 64
SLICE_S = 0.005
"""A task of the pool yields to the event loop after running jobs for this long."""
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0
RETRIES_PER_S = 50.0
"""The most retries of a tenant's jobs that have failed for long.

So the load on a store that is full or away does not grow with the number of waiting jobs."""

Work = Callable[[Any], Awaitable[None] | None]
"""Does a job; returns what to wait for, or None where it is done."""


def retry_delay_s(wait_s: float, jobs: int) -> float:
    """Returns the pause before a job's next try, in seconds.

    Args:
        wait_s: the pause of this job, which doubles up to ``LAST_RETRY_S``.
        jobs: of its tenant that wait to be retried.
    """
    return wait_s if wait_s < LAST_RETRY_S else max(wait_s, jobs / RETRIES_PER_S)


@dataclass(slots=True, eq=False)
class _Job:
    """A store job, and its pause before the next try if it fails."""

    work: Work
    argument: Any
    wait_s: float = FIRST_RETRY_S


class TaskPool:
    """Runs the jobs of all tenants in turn, at most ``count`` at once."""

    def __init__(
        self,
        *,
        failed: Callable[[BaseException], None],
        waits: Callable[[FlowMeshError], None],
        weight: Callable[[str], float] = lambda tenant: 1.0,
        count: int = POOL_TASKS,
    ) -> None:
        """Starts without tasks.

        Args:
            failed: called with an error that a job does not handle, or that ends a task.
            waits: called with the error for which a job is retried.
            weight: of a tenant, as in placement.
            count: the number of tasks.
        """
        self._failed = failed
        self._waits = waits
        self._count = count
        self._jobs: FairQueue[_Job] = FairQueue(weight=weight)
        self._resting: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: set[asyncio.TimerHandle] = set()
        self._refused: Counter[str] = Counter()
        self._slice_end = 0.0
        self._busy = 0  # tasks that take jobs, and do not wait for the store
        self.retries = 0

    def start(self) -> None:
        """Starts the tasks, which run until :meth:`stop`."""
        self._busy = 0
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self._count)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancels the tasks; unfinished jobs are dropped, since recovery repeats them."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Reports an error of the pool itself: without its tasks no job would run."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def submit(self, work: Work, argument: Any, tenants: Sequence[str] = ("",)) -> None:
        """Queues ``work(argument)`` for the one of its tenants that would be served first.

        The empty tenant is the fabric itself.
        """
        tenant = tenants[0] if len(tenants) == 1 else self._jobs.soonest(tenants)
        self._jobs.push(tenant, _Job(work, argument))
        self._wake()

    @property
    def backlog(self) -> int:
        """The number of jobs that wait for a task, without those that wait to be retried."""
        return len(self._jobs)

    def _wake(self) -> None:
        """Wakes a task, unless one is about to take the next job anyway."""
        while self._resting and not self._busy:
            hand = self._resting.pop()
            if not hand.done():
                hand.set_result(None)
                self._busy += 1

    async def _serve(self) -> None:
        self._busy += 1
        while True:
            while (taken := self._jobs.pop()) is not None:
                tenant, job = taken
                try:
                    pending = job.work(job.argument)
                    if pending is not None:
                        await self._waited(pending)
                except (StoreUnavailableError, EvaluatorUnavailableError) as e:
                    self.retries += 1
                    self._waits(e)
                    self._requeue_later(tenant, job)
                except Exception as e:  # ends the control plane; the next one reuses results
                    self._failed(e)
                self._jobs.done()
                if time.monotonic() > self._slice_end:
                    await asyncio.sleep(0)
                    self._slice_end = time.monotonic() + SLICE_S
            rest = asyncio.get_running_loop().create_future()
            self._resting.append(rest)
            self._busy -= 1
            await rest

    async def _waited(self, pending: Awaitable[None]) -> None:
        self._busy -= 1
        if self._jobs:
            self._wake()
        try:
            await pending
        finally:
            self._busy += 1

    def _requeue_later(self, tenant: str, job: _Job) -> None:
        """Queues a failed job again after its pause."""

        def requeue() -> None:
            self._timers.discard(timer)
            self._refused[tenant] -= 1
            if not self._refused[tenant]:
                del self._refused[tenant]
            self._jobs.push(tenant, job)
            self._wake()

        self._refused[tenant] += 1
        delay_s = retry_delay_s(job.wait_s, self._refused[tenant])
        timer = asyncio.get_running_loop().call_later(delay_s, requeue)
        self._timers.add(timer)
        job.wait_s = min(2 * job.wait_s, LAST_RETRY_S)
