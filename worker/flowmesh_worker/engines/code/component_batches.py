"""Batches the calls of a component host: the moment it is idle, by deadline, never waiting to fill.

The components of a host share one thread of computation. Which calls form a batch, and which
component's batch is next, is decided by ``flowmesh_core.serving.queue``, with the times that were
measured here, and with what the plan of the service says of each stage: the part of the latency
target that it has, and the time that the stages after it need.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Protocol

import msgspec

from flowmesh_core.protocol.serving import CallTimes, ComponentCall, ComponentProfile
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.batching import form_batch
from flowmesh_core.serving.queue.finish_order import ReadyBatch, next_batch
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_worker.engines.code.chain_results import ChainResult, LateError, QueueFullError
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
)
from flowmesh_worker.ipc.passed_values import StageBytes

FIRST_S = 0.001
"""What a call is taken to need before one was measured."""
BACKGROUND_SHARE = 0.05
REFUSE, SERVE = "refuse", "serve"
QUEUED_PER_BATCH = 2
_WEIGHT = 0.2
_MS = 1000.0
_MARGIN_S = 0.0
_NOTHING: Mapping[str, StageBytes] = MappingProxyType({})
_GRACE_S = 1.0
_LIMIT_S, _LIMIT_FACTOR = 5.0, 20.0
"""A batch is ended after so many times its predicted time, and not before this many seconds."""


class CodeRunner(Protocol):
    """What runs a batch: the sandbox, or a thread for trusted code."""

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Returns the results, in order; ``passed`` has values of other hosts, by call."""
        ...

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results that are kept."""
        ...

    async def close(self) -> None:
        """Ends what runs the code."""
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A call, or one of a chain after those before it.

    Attributes:
        rest: the calls of the chain after it.
        since_s: when the chain's budget began.
        times: of the calls before it, where the chain asks for them.
    """

    call: ComponentCall
    passed: Mapping[str, StageBytes]
    queued: WaitingCall
    until_s: float
    result: asyncio.Future[ChainResult]
    arrived_s: float
    since_s: float
    rest: Sequence[ComponentCall]
    step: int
    times: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class _Component:
    """One component: its queue, in order of arrival, and what was measured.

    Attributes:
        target_s: its part of the latency target, by the calls that waited last; 0 for none.
    """

    batch_max: int
    profile: BatchProfile = field(default_factory=lambda: BatchProfile.of({1: FIRST_S}))
    measured: bool = False
    queue: dict[str, _Waiting] = field(default_factory=dict)
    finish_s: float = 0.0
    times: CallTimes = field(default_factory=CallTimes)
    target_s: float = 0.0

    @property
    def cap(self) -> int:
        """The largest batch: near the knee, and within the component's part of the latency target.

        While the largest that was measured is the best, it grows to twice that. Beyond it a time
        is taken to grow in proportion: where that is too slow, it grows by one, so that it is
        measured.
        """
        profile, knee = self.profile, self.profile.knee()
        is_best = knee == profile.largest
        most = max(1, min(self.batch_max, 2 * knee if is_best else knee))
        if not self.target_s:
            return most
        within = profile.largest_within(self.target_s, most)
        grows = within == profile.largest < most and profile.at(within) <= self.target_s
        return within + grows

    def limit_s(self, size: int) -> float:
        """Returns how long a batch may take; any time before one was measured."""
        return max(_LIMIT_S, _LIMIT_FACTOR * self.profile.at(size)) if self.measured else math.inf

    def record(self, size: int, seconds: float) -> None:
        """Records the time of a batch."""
        weight = _WEIGHT if self.measured and size in self.profile.sizes else 1.0
        if not self.measured:  # a call alone may take as long as the whole batch
            self.profile = BatchProfile.of({1: max(seconds, 1e-6)})
        self.profile = self.profile.updated(size, max(seconds, 1e-6), weight)
        self.measured = True


class ComponentBatches:
    """The queues of one host."""

    def __init__(
        self,
        components: Sequence[LoadedCode],
        runner: CodeRunner,
        on_late: str,
        on_profile: Callable[[], None],
    ) -> None:
        """Starts with empty queues.

        Args:
            components: of the host.
            runner: runs their batches.
            on_late: of the service; see ``OnLate``.
            on_profile: called after each batch.
        """
        self._components = {one.name: _Component(one.batch_max) for one in components}
        self._runner = runner
        self._on_late = on_late
        self._on_profile = on_profile
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[None] | None = None
        self._background_s = self._busy_s = 0.0

    def profiles(self) -> tuple[ComponentProfile, ...]:
        """Returns what was measured of each component."""
        return tuple(
            ComponentProfile(
                name,
                len(c.queue),
                c.cap,
                c.profile.sizes,
                c.profile.seconds,
                msgspec.structs.replace(c.times),  # these go on
            )
            for name, c in self._components.items()
        )

    def call(
        self,
        call: ComponentCall,
        passed: Mapping[str, StageBytes] = _NOTHING,
        since_s: float | None = None,
    ) -> asyncio.Future[ChainResult]:
        """Begins a call, or a chain of them; where the future is cancelled, it leaves its queue.

        Args:
            call: of a component of this host.
            passed: inputs that components of other hosts have made.
            since_s: when its budget began, by the loop's clock; now, where it begins with the call.

        Returns:
            The result. Its errors are QueueFullError, where a component has as many calls as it
            takes; LateError, where the call cannot be in time and its service refuses such; and
            AttemptError, where the code cannot be run any more.
        """
        result: asyncio.Future[ChainResult] = self._loop.create_future()
        result.add_done_callback(partial(self._left, call))
        self._queue(call, passed, result, self._loop.time() if since_s is None else since_s)
        return result

    def _queue(
        self,
        call: ComponentCall,
        passed: Mapping[str, StageBytes],
        result: asyncio.Future[ChainResult],
        since_s: float,
        rest: Sequence[ComponentCall] | None = None,
        step: int = 0,
        times: tuple[tuple[float, float], ...] = (),
    ) -> None:
        component = self._components.get(call.component)
        if component is None:
            result.set_exception(KeyError(call.component))
            return
        if len(component.queue) >= QUEUED_PER_BATCH * component.batch_max:
            result.set_exception(QueueFullError(step))
            return
        until_s = since_s + call.budget_ms / _MS
        due_s = since_s + call.slo_ms / _MS if call.slo_ms and self._on_late != SERVE else until_s
        timing = call.timing
        queued = WaitingCall(call.call_id, due_s, timing.visits, timing.rest_s)
        rest = call.then if rest is None else rest
        component.queue[call.call_id] = _Waiting(
            call, passed, queued, until_s, result, self._loop.time(), since_s, rest, step, times
        )
        if self._running is None:
            self._running = self._loop.create_task(self._run())

    def _left(self, chain: ComponentCall, result: asyncio.Future[ChainResult]) -> None:
        if result.cancelled():
            for call in (chain, *chain.then):
                if (component := self._components.get(call.component)) is not None:
                    component.queue.pop(call.call_id, None)

    async def close(self) -> None:
        """Ends what runs; its calls have no result."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._runner.close()

    async def _run(self) -> None:
        """Runs batches while there are calls."""
        try:
            while (chosen := self._next()) is not None:
                await self._run_batch(*chosen)
                await asyncio.sleep(0)  # the results leave, and calls that have come are taken
        finally:
            self._running = None

    def _next(self) -> tuple[str, list[_Waiting], bool] | None:
        """Returns the next batch, whose calls leave their queue; None where nothing waits."""
        now_s = self._loop.time()
        background_due = self._background_s < BACKGROUND_SHARE * self._busy_s
        ready: dict[str, ReadyBatch] = {}
        members: dict[str, list[_Waiting]] = {}
        for name, component in self._components.items():
            if component.queue:
                members[name], demoted = self._members(component, now_s, background_due)
                if members[name]:
                    ready[name] = self._ready(name, members[name], demoted=demoted)
        best = next_batch(tuple(ready.values()), now_s, background_due=background_due)
        if best is None:
            return None
        component = self._components[best.instance]
        for one in members[best.instance]:
            del component.queue[one.call.call_id]
        component.finish_s = best.finish_s
        # Aged work that was next anyway leaves the least share to demoted work.
        is_background = best.demoted or (background_due and best.is_background(now_s))
        return best.instance, members[best.instance], is_background

    def _ready(self, name: str, members: Sequence[_Waiting], *, demoted: bool) -> ReadyBatch:
        component = self._components[name]
        return ReadyBatch(
            instance=name,
            arrived_s=min(one.arrived_s for one in members),
            seconds=component.profile.at(len(members)),
            share=1 / len(self._components),
            previous_finish_s=component.finish_s,
            target_s=component.target_s,
            demoted=demoted,
        )

    def _members(
        self, component: _Component, now_s: float, background_due: bool
    ) -> tuple[list[_Waiting], bool]:
        """Returns a component's next batch, and whether it is late already."""
        waiting = component.queue.values()
        queued = [one.queued for one in waiting]
        targets_s = (t for one in waiting if (t := one.call.timing.target_s))
        component.target_s = min(targets_s, default=0.0)  # of several services, the tightest
        formed = form_batch(queued, component.profile, component.cap, _MARGIN_S, now_s)
        chosen, demoted = formed.calls, False
        if self._on_late == REFUSE:
            for late in formed.late:
                ended = component.queue.pop(late.id)
                if not ended.result.done():
                    ended.result.set_exception(LateError(ended.step))
        elif formed.late and (background_due or not formed.calls):
            chosen, demoted = formed.late[: component.cap], True
        return [component.queue[call.id] for call in chosen], demoted

    async def _run_batch(self, name: str, members: list[_Waiting], background: bool) -> None:
        calls = [_batch_call(one.call) for one in members]
        began_s = self._loop.time()
        left_s = max(one.until_s for one in members) - began_s + _GRACE_S
        within_s = min(left_s, self._components[name].limit_s(len(members)))
        try:
            passed = [one.passed for one in members]
            results = await self._runner.run(name, calls, max(within_s, _GRACE_S), passed)
        except Exception as error:
            for one in members:
                if not one.result.done():
                    one.result.set_exception(error)
            return
        seconds, size = self._loop.time() - began_s, len(members)
        queue_s = sum(began_s - one.arrived_s for one in members)
        self._components[name].times.add(CallTimes(size, queue_s, size * seconds, 1, size))
        self._busy_s += seconds
        self._background_s += seconds if background else 0.0
        if all(result.kind is ResultKind.OK for result in results):
            self._components[name].record(len(members), seconds)
        unwanted = [one.call.store_as for one in members if one.result.done() and one.call.store_as]
        if unwanted:
            self._runner.forget(tuple(unwanted))
        for one, result in zip(members, results, strict=True):
            if not one.result.done():
                if one.call.timed:
                    one.times += ((began_s - one.arrived_s, seconds),)
                self._go_on(one, result)
        self._on_profile()

    def _go_on(self, ended: _Waiting, result: CallResult) -> None:
        """Queues the next call of a chain, or gives the result."""
        if not ended.rest or result.kind is not ResultKind.OK:
            ended.result.set_result(ChainResult(ended.call, result, ended.step, ended.times))
            return
        rest, step = ended.rest, ended.step + 1
        self._queue(rest[0], _NOTHING, ended.result, ended.since_s, rest[1:], step, ended.times)


def _batch_call(call: ComponentCall) -> BatchCall:
    return BatchCall(
        call.body, call.stored, call.store_as, call.wants_body, call.passed, call.wants_value
    )
