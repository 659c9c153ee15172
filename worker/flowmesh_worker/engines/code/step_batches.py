"""Runs the steps of components that iterate, and keeps account of the calls that take part.

A call begins with the first step that it takes part in, and ends with the step after which its
component says that it is finished. Where a step of several calls fails, each of them begins again
and runs alone, so that the one at fault fails alone; where the process of the code has ended on
something else, calls whose states it had begin again beside others.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from flowmesh_core.protocol.serving import CallTimes, ComponentCall
from flowmesh_worker.engines.code.code_runner import CodeRunner
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    ResultKind,
    StepMember,
)
from flowmesh_worker.engines.code.component_queue import ComponentQueue, QueuedCall
from flowmesh_worker.engines.code.iterating_code import StepResults
from flowmesh_worker.ipc.passed_values import NO_VALUES


class EndedCall(NamedTuple):
    """A call that has a result of its component.

    Attributes:
        began_s: when it began to run; ``seconds`` that it ran.
    """

    one: QueuedCall
    result: CallResult
    began_s: float
    seconds: float


class StepBatches:
    """The steps of one host."""

    def __init__(self, runner: CodeRunner) -> None:
        self._runner = runner
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    async def run(
        self, name: str, component: ComponentQueue, members: list[QueuedCall], within_s: float
    ) -> list[EndedCall]:
        """Runs one step; returns the calls that have ended with it, which leave the queue.

        Raises:
            AttemptError: the code cannot be run any more.
        """
        began_s = self._loop.time()
        sent = [self._member(one, began_s) for one in members]
        passed = [one.passed if m.call else NO_VALUES for one, m in zip(members, sent, strict=True)]
        ran = await self._runner.step(name, sent, within_s, passed)
        ended_s = self._loop.time()
        _record(component, members, ran, ended_s - began_s)
        ended = []
        for one, result in zip(members, ran.results, strict=True):
            found = _advanced(one, result, ended_s)
            if found is not None:
                component.queue.pop(one.call.call_id, None)
                began_s = one.progress.began_s
                ended.append(EndedCall(one, found, began_s, ended_s - began_s))
        component.times.add(_times(ended, len(members)))
        return ended

    def _member(self, one: QueuedCall, now_s: float) -> StepMember:
        """Returns a call for a step; one that begins gets the name of its state."""
        progress = one.progress
        if progress.state:
            return StepMember(progress.state)
        progress.state = f"state {next(self._numbers)}"
        progress.began_s = progress.began_s or now_s
        return StepMember(progress.state, batch_call(one.call))


def _advanced(one: QueuedCall, result: CallResult, now_s: float) -> CallResult | None:
    """Returns the result of a call that has one; else what it does next is in its progress."""
    progress = one.progress
    progress.stepped_s = now_s
    match result.kind:
        case ResultKind.UNFINISHED:
            progress.steps += 1
            progress.remaining = result.remaining
        case ResultKind.STATE_LOST:
            progress.restart(alone=False)
        case ResultKind.RESTART if not progress.is_alone:
            progress.restart(alone=True)
        case ResultKind.RESTART:  # a process that keeps to the protocol does not say so
            return CallResult(ResultKind.RAISED, error="the call failed without an error")
        case _:
            progress.steps += 1
            return result
    return None


def _record(
    component: ComponentQueue, members: Sequence[QueuedCall], ran: StepResults, seconds: float
) -> None:
    """Records the times of a step in which nothing failed."""
    kinds = {result.kind for result in ran.results}
    if not kinds <= {ResultKind.OK, ResultKind.UNFINISHED}:
        return
    assert component.steps is not None, "it iterates"
    start_s, finish_s = (x if 0 <= x <= seconds else 0.0 for x in (ran.start_s, ran.finish_s))
    component.record(len(members), max(0.0, seconds - start_s - finish_s))
    component.steps.record_starts(sum(not one.progress.steps for one in members), start_s)
    pairs = zip(members, ran.results, strict=True)
    steps = [one.progress.steps + 1 for one, result in pairs if result.kind is ResultKind.OK]
    component.steps.record_ends(steps, finish_s)


def _times(ended: Sequence[EndedCall], size: int) -> CallTimes:
    """Returns the times of the calls that have ended, with one batch."""
    queue_s = sum(began_s - one.arrived_s for one, _, began_s, _ in ended)
    return CallTimes(len(ended), queue_s, sum(one.seconds for one in ended), 1, size)


def batch_call(call: ComponentCall) -> BatchCall:
    """Returns a call as its process gets it."""
    return BatchCall(
        call.body, call.stored, call.store_as, call.wants_body, call.passed, call.wants_value
    )
