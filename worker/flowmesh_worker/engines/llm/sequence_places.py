"""Which sequences run in a vLLM engine, for its steps to keep the targets of services.

Calls of services and rows of attempts ask for a place before they enter the engine. Without targets
each gets one at once. With a target of time per token as many run as the measured steps allow; rows
give way to calls: a row that stops is computed again, and its seed gives it the same bytes where
results do not depend on the batch. With a target of time to the first token a call is refused
while the prompts before it, and its own, would take longer.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from flowmesh_core.protocol.serving import TokenTargets
from flowmesh_core.serving.queue.sequence_queue import SequenceQueue
from flowmesh_core.serving.queue.step_profile import TOKEN_MARGIN, StepProfile
from flowmesh_worker.engine_api import CallRefusedError

T = TypeVar("T")
_FIT_EVERY_STEPS = 16


class SequencePlaces:
    """The places of one engine.

    Attributes:
        profile: of its steps.
        prompts: prompt tokens of calls whose first token has not come, by the request's name.
    """

    def __init__(self, most: int) -> None:
        """Has no targets.

        Args:
            most: sequences that the engine runs at once.
        """
        self.profile = StepProfile()
        self.prompts: dict[str, int] = {}
        self._most = most
        self._queue = SequenceQueue()
        self._targets = TokenTargets()
        self._changed: Callable[[int], None] = lambda _: None
        self._running: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._rows: dict[str, asyncio.Task[Any]] = {}
        self._stopped: set[asyncio.Task[Any]] = set()
        self._steps = 0

    @property
    def sequences_max(self) -> int:
        """How many sequences run at once."""
        return self._queue.limit or self._most

    def use_targets(self, targets: TokenTargets, changed: Callable[[int], None]) -> None:
        """See ``KeepsTokenTargets``."""
        self._targets, self._changed = targets, changed
        self._limit()
        changed(self.sequences_max)

    def observe(self, sequences: int, prompt_tokens: int, seconds: float) -> None:
        """Records a step of the engine; see :meth:`StepProfile.observe`."""
        self.profile.observe(sequences, prompt_tokens, seconds)
        self._steps += 1
        if self._steps % _FIT_EVERY_STEPS == 0:
            self._limit()

    def require_in_time(self, prompt_tokens: int) -> None:
        """Checks that the first token of a call would be in time.

        A prompt with none before it is always in time: it would be refused for ever.

        Raises:
            CallRefusedError: it would be late.
        """
        before = sum(self.prompts.values())
        if not self._targets.ttft_s or not before:
            return
        fit = self.profile.fit()
        if fit is None:
            return
        first_s = fit.seconds(self._queue.running, before + prompt_tokens)
        if first_s > TOKEN_MARGIN * self._targets.ttft_s:
            raise CallRefusedError(f"{before} tokens of prompts are waiting")

    @contextlib.asynccontextmanager
    async def of_call(self, name: str, prompt_tokens: int, sequences: int) -> AsyncIterator[None]:
        """Gives a place to a call's request during the block, once there is one."""
        if self._targets.ttft_s:
            self.prompts[name] = prompt_tokens
        self._queue.add_request(name, sequences)
        try:
            await self._begin(name)
            yield
        finally:
            self.prompts.pop(name, None)
            self._end(name)

    def first_token(self, name: str) -> None:
        """Notes that the prompt of a call's request is computed."""
        self.prompts.pop(name, None)

    async def of_row(
        self, name: str, priority: int, compute: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Computes a row of an attempt in a place, again from its beginning where it is stopped."""
        self._queue.add_row(name, priority)
        try:
            while True:
                await self._begin(name)
                self._rows[name] = task = asyncio.get_running_loop().create_task(compute())
                try:
                    return await task
                except asyncio.CancelledError:
                    if task not in self._stopped or _is_cancelled():
                        raise
                finally:
                    task.cancel()
                    self._stopped.discard(task)
        finally:
            self._rows.pop(name, None)
            self._end(name)

    async def _begin(self, name: str) -> None:
        """Waits for the turn of a call or a row."""
        self._advance()
        while name not in self._running:
            self._waiting[name] = asyncio.get_running_loop().create_future()
            await self._waiting[name]

    def _end(self, name: str) -> None:
        self._queue.remove(name)
        self._running.discard(name)
        self._waiting.pop(name, None)
        self._advance()

    def _advance(self) -> None:
        """Stops rows, and lets calls and rows begin."""
        changes = self._queue.advance()
        for name in changes.stop:
            self._running.discard(name)
            if (task := self._rows.pop(name, None)) is not None:
                self._stopped.add(task)
                task.cancel()
        for name in changes.begin:
            self._running.add(name)
            waiting = self._waiting.pop(name, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def _limit(self) -> None:
        """Has as many sequences run as the target of time per token allows by now."""
        tpot_s = self._targets.tpot_s
        limit = self.profile.sequences_within(TOKEN_MARGIN * tpot_s, self._most) if tpot_s else 0
        if limit != self._queue.limit:
            self._queue.limit = limit
            self._advance()
            self._changed(self.sequences_max)


def _is_cancelled() -> bool:
    """Whether this task is cancelled itself, beside the one that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
