"""Runs batches of trusted components in the engine host itself.

A batch runs on a thread of its own, so that the host takes calls meanwhile. To pass it there and
back takes longer than a batch of a few microseconds, so such batches run at once.
"""

import asyncio
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    StepMember,
)
from flowmesh_worker.engines.code.iterating_code import StepResults
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.ipc.reusable_files import ReusableFiles

T = TypeVar("T")
_AT_ONCE_S = 0.0002
"""A component whose latest batches took less is run without the thread."""
_PREEMPTED_MAX_S = 0.01
_PREPARE_AFTER_S = 0.002
"""Until then the result is on its way, through processes that need this machine's processors."""
_DECAY = 0.9


class TrustedCode:
    """The code of trusted components; see ``CodeRunner``."""

    def __init__(self, components: Sequence[LoadedCode]) -> None:
        """Runs the modules.

        Raises:
            Exception: whatever the code raises.
        """
        self.code = ComponentCode(components, ReusableFiles())
        self._thread = ThreadPoolExecutor(1, "component")
        self._slowest_s: dict[str, float] = {}
        self._busy = 0
        self._preparing: asyncio.TimerHandle | None = None

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Returns the results of a batch; trusted code is not ended."""
        del within_s
        return await self._run(component, self.code.run, component, calls, passed)

    @property
    def iterating(self) -> tuple[str, ...]:
        """See ``CodeRunner``."""
        return self.code.iterating

    async def step(
        self,
        component: str,
        members: Sequence[StepMember],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> StepResults:
        """Returns the results of a step; trusted code is not ended."""
        del within_s
        return await self._run(component, self.code.step, component, members, passed)

    async def _run(self, component: str, function: Callable[..., T], *arguments: Any) -> T:
        if self._slowest_s.get(component, _AT_ONCE_S) < _AT_ONCE_S and not self._busy:
            results = self._timed(component, function, *arguments)
        else:
            results = await self._submit(self._timed, component, function, *arguments)
        if self.code.may_prepare and self._preparing is None:
            loop = asyncio.get_running_loop()
            self._preparing = loop.call_later(_PREPARE_AFTER_S, self._prepare)
        return results

    def _timed(self, component: str, function: Callable[..., T], *arguments: Any) -> T:
        began_s, processor_s, waits = time.perf_counter(), time.thread_time(), _waits()
        results = function(*arguments)
        took_s = time.perf_counter() - began_s
        if _AT_ONCE_S <= took_s < _PREEMPTED_MAX_S and _waits() == waits:
            took_s = time.thread_time() - processor_s  # the code has run or was preempted
        self._slowest_s[component] = max(took_s, _DECAY * self._slowest_s.get(component, 0.0))
        return results

    def _submit(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        running = asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
        self._busy += 1
        running.add_done_callback(self._done)
        return running

    def _prepare(self) -> None:
        self._preparing = None
        self._submit(self.code.prepare)

    def _done(self, _: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results that are kept."""
        if self._busy:
            self._submit(self.code.forget, keys)  # after the batch that may keep them
        else:
            self.code.forget(keys)

    async def close(self) -> None:
        """Ends the thread after its last batch."""
        if self._preparing is not None:
            self._preparing.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


def _waits() -> int:
    """Returns how often this thread has waited for something: no time that others take from it."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
