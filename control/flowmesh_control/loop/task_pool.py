"""A fixed number of tasks that do the work outside: look-ups, publications, checks.

No task is made for a job. A store that answers without waiting (memory, a directory) is served by
one hand in one go; a store across the network keeps all of them busy. Tenants are served in turn
(``fair_queue``): a job waits for the jobs of others only while those are under way. A job that
finds the store unavailable is tried again until it answers; meanwhile it waits in no other job's
way, however many of its tenant do.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_control.loop.fair_queue import FairQueue
from flowmesh_core.errors import FlowMeshError, StoreUnavailableError

HANDS = 64
SLICE_S = 0.005
"""After this long without waiting for anything a hand lets others run."""
FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0
RETRIES_PER_S = 50.0
"""So often at most a tenant's jobs are tried that were refused for long: a store that is full or
away is not asked the more, the more jobs wait for it."""

Work = Callable[[Any], Awaitable[None]]


def retry_delay_s(wait_s: float, jobs: int) -> float:
    """Returns when to try a job again.

    Args:
        wait_s: the pause of this job, which doubles up to ``LAST_RETRY_S``.
        jobs: of its tenant that wait to be tried again.
    """
    return wait_s if wait_s < LAST_RETRY_S else max(wait_s, jobs / RETRIES_PER_S)


@dataclass(slots=True, eq=False)
class _Job:
    """A piece of work, and how long it waits where it has to be tried again."""

    work: Work
    argument: Any
    wait_s: float = FIRST_RETRY_S


class TaskPool:
    """Does the jobs of all tenants in turn, at most so many at once."""

    def __init__(
        self,
        *,
        failed: Callable[[BaseException], None],
        waits: Callable[[FlowMeshError], None],
        weight: Callable[[str], float] = lambda tenant: 1.0,
        count: int = HANDS,
    ) -> None:
        """Makes no task yet.

        Args:
            failed: told of an error that a job does not handle, or that ends a task of the pool.
            waits: told why a job is tried again.
            weight: of a tenant, as in placement.
            count: how many hands.
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
        self.retries = 0

    def start(self) -> None:
        """Makes the hands; they live until :meth:`stop`."""
        self._tasks = [asyncio.create_task(self._serve()) for _ in range(self._count)]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Ends the hands; jobs not done are dropped (they are repeatable)."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Passes on an error of the pool itself: without its tasks no job would be done."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def give(self, work: Work, argument: Any, tenants: Sequence[str] = ("",)) -> None:
        """Queues ``work(argument)`` as that tenant's, of those that want it, who is served first.

        The empty tenant is the fabric itself.
        """
        tenant = tenants[0] if len(tenants) == 1 else self._jobs.soonest(tenants)
        self._jobs.push(tenant, _Job(work, argument))
        self._wake()

    @property
    def backlog(self) -> int:
        """How many jobs wait for a task; those that wait to be tried again do not count."""
        return len(self._jobs)

    def _wake(self) -> None:
        while self._resting:
            hand = self._resting.pop()
            if not hand.done():
                hand.set_result(None)
                return

    async def _serve(self) -> None:
        while True:
            while (taken := self._jobs.pop()) is not None:
                await self._do(*taken)
                if time.monotonic() > self._slice_end:
                    await asyncio.sleep(0)
                    self._slice_end = time.monotonic() + SLICE_S
            rest = asyncio.get_running_loop().create_future()
            self._resting.append(rest)
            await rest

    async def _do(self, tenant: str, job: _Job) -> None:
        try:
            await job.work(job.argument)
        except StoreUnavailableError as e:
            self.retries += 1
            self._waits(e)
            self._again_later(tenant, job)
        except Exception as e:  # told, and ends the control plane: recovery is reuse
            self._failed(e)
        self._jobs.done()

    def _again_later(self, tenant: str, job: _Job) -> None:
        """Queues a job anew after a while."""

        def again() -> None:
            self._timers.discard(timer)
            self._refused[tenant] -= 1
            if not self._refused[tenant]:
                del self._refused[tenant]
            self._jobs.push(tenant, job)
            self._wake()

        self._refused[tenant] += 1
        delay_s = retry_delay_s(job.wait_s, self._refused[tenant])
        timer = asyncio.get_running_loop().call_later(delay_s, again)
        self._timers.add(timer)
        job.wait_s = min(2 * job.wait_s, LAST_RETRY_S)
