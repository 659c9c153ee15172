"""Batches the calls of a component host: the moment it is idle, by deadline, never waiting to fill.

The components of a host share one thread of computation. Which calls form a batch, and which
component's batch is next, is decided by ``flowmesh_core.serving.queue``, with the times that were
measured here, and with what the plan of the service says of each stage: the part of the latency
target that it has, and the time that the stages after it need.

Of a component that iterates a batch is one step (:mod:`step_batches`): what takes part in the next
one is decided when it has ended.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from flowmesh_core.protocol.serving import CallTimes, ComponentCall, ComponentProfile
from flowmesh_core.serving.queue.batching import form_batch
from flowmesh_core.serving.queue.finish_order import ReadyBatch, next_batch
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_worker.engines.code.chain_results import ChainResult, LateError, QueueFullError
from flowmesh_worker.engines.code.code_runner import CodeRunner
from flowmesh_worker.engines.code.component_frames import (
    CallResult,
    LoadedCode,
    ResultKind,
)
from flowmesh_worker.engines.code.component_queue import MARGIN_S, ComponentQueue, QueuedCall
from flowmesh_worker.engines.code.iteration_times import IterationTimes
from flowmesh_worker.engines.code.step_batches import EndedCall, StepBatches, batch_call
from flowmesh_worker.ipc.passed_values import NO_VALUES, StageBytes

BACKGROUND_SHARE = 0.05
REFUSE, SERVE = "refuse", "serve"
_MS = 1000.0
_GRACE_S = 1.0


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
            runner: runs their batches and steps.
            on_late: of the service; see ``OnLate``.
            on_profile: called after each batch, and after each step that has ended a call.
        """
        self._components = {one.name: ComponentQueue(one.batch_max) for one in components}
        for name in self._components.keys() & set(runner.iterating):
            self._components[name].steps = IterationTimes()
        self._runner = runner
        self._steps = StepBatches(runner)
        self._on_late = on_late
        self._on_profile = on_profile
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[None] | None = None
        self._background_s = self._busy_s = 0.0

    def profiles(self) -> tuple[ComponentProfile, ...]:
        """Returns what was measured of each component."""
        return tuple(_profile(name, one) for name, one in self._components.items())

    def call(
        self,
        call: ComponentCall,
        passed: Mapping[str, StageBytes] = NO_VALUES,
        since_s: float | None = None,
    ) -> asyncio.Future[ChainResult]:
        """Begins a call, or a chain of them; where the future is cancelled, it leaves its queue.

        Args:
            call: of a component of this host.
            passed: inputs that components of other hosts have made.
            since_s: when its budget began, by the loop's clock; now, where it begins with the call.

        Returns:
            The result. Its errors are QueueFullError, where a component has as many calls as it
            takes; LateError, where the call cannot be in time and its service refuses such, or
            iterates beyond its timeout; and AttemptError, where the code cannot be run any more.
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
        if component.is_full:
            result.set_exception(QueueFullError(step))
            return
        until_s = since_s + call.budget_ms / _MS
        due_s = since_s + call.slo_ms / _MS if call.slo_ms and self._on_late != SERVE else until_s
        timing = call.timing
        queued = WaitingCall(call.call_id, due_s, timing.visits, timing.rest_s)
        rest = call.then if rest is None else rest
        component.queue[call.call_id] = QueuedCall(
            call, passed, queued, until_s, result, self._loop.time(), since_s, rest, step, times
        )
        if self._running is None:
            self._running = self._loop.create_task(self._run())

    def _left(self, chain: ComponentCall, result: asyncio.Future[ChainResult]) -> None:
        if result.cancelled():
            for call in (chain, *chain.then):
                if (component := self._components.get(call.component)) is not None:
                    self._drop(component, call.call_id)

    def _drop(self, component: ComponentQueue, call_id: str) -> None:
        """Takes a call that is not wanted any more, and its state, from a queue."""
        dropped = component.queue.pop(call_id, None)
        if dropped is not None and dropped.progress.state:
            self._runner.forget((dropped.progress.state,))

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

    def _next(self) -> tuple[str, list[QueuedCall], bool] | None:
        """Returns the next batch; None where nothing waits."""
        now_s = self._loop.time()
        background_due = self._background_s < BACKGROUND_SHARE * self._busy_s
        ready: dict[str, ReadyBatch] = {}
        members: dict[str, list[QueuedCall]] = {}
        for name, component in self._components.items():
            if component.queue:
                members[name], demoted = self._members(component, now_s, background_due)
                if members[name]:
                    ready[name] = self._ready(name, members[name], demoted=demoted)
        best = next_batch(tuple(ready.values()), now_s, background_due=background_due)
        if best is None:
            return None
        self._components[best.instance].finish_s = best.finish_s
        # Aged work that was next anyway leaves the least share to demoted work.
        is_background = best.demoted or (background_due and best.is_background(now_s))
        return best.instance, members[best.instance], is_background

    def _ready(self, name: str, members: Sequence[QueuedCall], *, demoted: bool) -> ReadyBatch:
        component = self._components[name]
        return ReadyBatch(
            instance=name,
            arrived_s=min(one.ready_s for one in members),
            seconds=component.profile.at(len(members)),
            share=1 / len(self._components),
            previous_finish_s=component.finish_s,
            target_s=component.target_s,
            demoted=demoted,
        )

    def _members(
        self, component: ComponentQueue, now_s: float, background_due: bool
    ) -> tuple[list[QueuedCall], bool]:
        """Returns a component's next batch, and whether it is late already."""
        if component.steps is not None:
            self._end_overdue(component, now_s)
        waiting = component.queue.values()
        targets_s = (t for one in waiting if (t := one.call.timing.target_s))
        component.target_s = min(targets_s, default=0.0)  # of several services, the tightest
        queued = component.waiting()
        formed = form_batch(queued, component.profile, component.cap, MARGIN_S, now_s)
        chosen, demoted = formed.calls, False
        if self._on_late == REFUSE:
            measured = None if formed.calls else component.to_measure(formed.late)
            for late in formed.late:
                if late is not measured:
                    self._refuse(component, late.id)
            chosen = formed.calls if measured is None else (measured,)
        elif formed.late and (background_due or not formed.calls):
            chosen, demoted = formed.late[: component.cap], True
        return component.members(chosen), demoted

    def _end_overdue(self, component: ComponentQueue, now_s: float) -> None:
        """Ends calls whose timeout has passed: one may go on for ever."""
        overdue = [call_id for call_id, one in component.queue.items() if one.until_s < now_s]
        for call_id in overdue:
            self._refuse(component, call_id)

    def _refuse(self, component: ComponentQueue, call_id: str) -> None:
        late = component.queue[call_id]
        self._drop(component, call_id)
        if not late.result.done():
            late.result.set_exception(LateError(late.step))

    async def _run_batch(self, name: str, members: list[QueuedCall], background: bool) -> None:
        component, began_s = self._components[name], self._loop.time()
        left_s = max(one.until_s for one in members) - began_s + _GRACE_S
        within_s = max(min(left_s, component.limit_s(members)), _GRACE_S)
        run = self._one_batch if component.steps is None else self._steps.run
        try:
            ended = await run(name, component, members, within_s)
        except Exception as error:
            _fail(component, members, error)
            return
        seconds = self._loop.time() - began_s
        self._busy_s += seconds
        self._background_s += seconds if background else 0.0
        self._end(ended)
        if ended:
            self._on_profile()

    async def _one_batch(
        self, name: str, component: ComponentQueue, members: list[QueuedCall], within_s: float
    ) -> list[EndedCall]:
        """Runs a batch of a component that does not iterate; its calls leave the queue first."""
        for one in members:
            del component.queue[one.call.call_id]
        calls, passed = [batch_call(one.call) for one in members], [one.passed for one in members]
        began_s = self._loop.time()
        results = await self._runner.run(name, calls, within_s, passed)
        seconds, size = self._loop.time() - began_s, len(members)
        queue_s = sum(began_s - one.arrived_s for one in members)
        component.times.add(CallTimes(size, queue_s, size * seconds, 1, size))
        if all(result.kind is ResultKind.OK for result in results):
            component.record(size, seconds)
        ended = zip(members, results, strict=True)
        return [EndedCall(one, result, began_s, seconds) for one, result in ended]

    def _end(self, ended: Sequence[EndedCall]) -> None:
        """Goes on with calls that have a result of their component."""
        unwanted = [
            one.call.store_as for one, *_ in ended if one.result.done() and one.call.store_as
        ]
        if unwanted:
            self._runner.forget(tuple(unwanted))
        for one, result, began_s, seconds in ended:
            if not one.result.done():
                if one.call.timed:
                    one.times += ((began_s - one.arrived_s, seconds),)
                self._go_on(one, result)

    def _go_on(self, ended: QueuedCall, result: CallResult) -> None:
        """Queues the next call of a chain, or gives the result."""
        if not ended.rest or result.kind is not ResultKind.OK:
            ended.result.set_result(ChainResult(ended.call, result, ended.step, ended.times))
            return
        rest, step = ended.rest, ended.step + 1
        self._queue(rest[0], NO_VALUES, ended.result, ended.since_s, rest[1:], step, ended.times)


def _fail(component: ComponentQueue, members: Sequence[QueuedCall], error: Exception) -> None:
    """Ends the calls of a batch that could not be run."""
    for one in members:
        component.queue.pop(one.call.call_id, None)
        if not one.result.done():
            one.result.set_exception(error)


def _profile(name: str, component: ComponentQueue) -> ComponentProfile:
    profile = component.call_profile
    return ComponentProfile(
        name,
        component.queued,
        component.cap,
        () if profile is None else profile.sizes,
        () if profile is None else profile.seconds,
        msgspec.structs.replace(component.times),  # these go on
        call_lengths=() if component.steps is None else component.steps.call_lengths,
    )
