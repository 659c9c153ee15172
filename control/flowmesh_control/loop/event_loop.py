"""The event loop: applies all events to the machine, one after the other, as its only writer.

Events come from the gateway, the API and the command executor; the machine's commands go to the
executor, whose results are events again. A pass applies queued events, advances time four times a
second, and runs a scheduling cycle when the machine asks for one. A pass is synchronous, so that
tests can call it directly; :meth:`EventLoop.run` calls it as events come.

Five constants pace it. A scheduling cycle costs about half a millisecond however little it places,
so cycles should be few; but an action that is ready waits for the next one. The measurements are in
ADR 15 (``docs/adr/0015-decide-at-once-while-idle.md``):

- ``DECIDE_GAP_S``, 4 ms: while events or store tasks wait, ready actions gather for the next cycle.
  With this gap in an idle loop too, an action waited 1.1 to 1.7 ms at half load (median), most of
  its latency; an idle loop decides at once, and it waits 0.6 to 0.7 ms. Idleness is judged by the
  queues: a measure of processor time, which was tried, lags by 50 ms.
- ``REST``, 1: after a cycle, events get at least as much time as it took, even where thousands of
  actions are ready. An equal share, not a measured value.
- ``SHORT_S``, 1 ms: a cycle this short has no such pause. epoll counts whole milliseconds, and a
  timer of 0.5 ms took 1 ms.
- ``TURN_S``, 6 ms: a pass ends even if events wait, so that workers get what was decided. With 20
  ms, chains of actions came back as one wave, and control plane and workers waited for each other
  in turn: 1,357 actions a second in place of 1,679. Below 6 ms the batches are smaller, which costs
  3 to 8% more processor time an action.
- ``UNDERLOADED_SLICE_S``, 2 ms: the same after a cycle that placed everything, so workers have free
  slots. It splits the wave into two that overlap: chains 1.26 times as fast. Always 2 or 3 ms makes
  fans 0.87 times as fast, whose workers are busy anyway.

Tests: ``test_the_loop_decides_at_once_unless_other_work_is_pending``,
``test_after_a_long_decision_events_get_the_same_amount_of_time`` and
``test_turns_are_short_while_the_workers_have_free_slots``.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_control.loop.clock import Clock
from flowmesh_control.loop.current_event import CurrentEventMarker
from flowmesh_control.ports import Executor, MachinePort
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.commands import Command, ConfirmAttempts
from flowmesh_core.machine.events import (
    ControlStalled,
    Event,
    PlacementDecided,
    TimeAdvanced,
    WorkerConnected,
)
from flowmesh_core.metrics.histogram import Histogram

TICK_S = 0.25
"""How often the passing of time is applied as an event."""
STALL_S = 2.0
"""Without a tick for this long the process was suspended: attempts were not observed meanwhile."""
DECIDE_GAP_S = 0.004
"""Minimum time between two scheduling cycles while events or store tasks wait."""
DECIDE_DUTY_RATIO = 1.0
"""Minimum time for events after a cycle, as a multiple of that cycle's duration."""
SHORT_S = 0.001
"""A cycle that took at most this long is not followed by such a pause."""
TURN_S = 0.006
"""A pass ends after this time even if events wait, so that sockets are served."""
UNDERLOADED_SLICE_S = 0.002
"""The same after a cycle that placed all ready actions: workers have free slots."""
TICK_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


@dataclass(slots=True)
class _Asked:
    """An event whose sender waits until it is applied."""

    event: Event
    applied: asyncio.Future[None]


class EventLoop:
    """Applies events in order of arrival, and runs scheduling cycles."""

    def __init__(
        self,
        *,
        machine: MachinePort,
        decide: Callable[[Snapshot], Decision],
        executor: Executor,
        marker: CurrentEventMarker,
        clock: Clock,
    ) -> None:
        """Starts without events.

        Args:
            machine: the run machine.
            decide: the scheduler.
            executor: executes the machine's commands.
            marker: says which event is being applied, for the case that it ends the process.
            clock: Unix time in seconds.
        """
        self.machine = machine
        self._decide = decide
        self._executor = executor
        self._marker = marker
        self._clock = clock
        self._events: deque[Event | _Asked] = deque()
        self._wake = asyncio.Event()
        self._ticked_s = float("-inf")
        self._next_decide_busy_s = float("-inf")
        self._next_decide_idle_s = float("-inf")
        self._last_cycle_placed_all = True
        self.applied = 0
        self.turns = 0
        self.ticks = Histogram(TICK_BOUNDS_S)

    def post(self, event: Event) -> None:
        """Queues an event."""
        self._events.append(event)
        self._wake.set()

    async def post_and_wait(self, event: Event) -> None:
        """Queues an event and waits until it was applied.

        Raises:
            InvariantError: the machine could not apply it.
        """
        asked = _Asked(event, asyncio.get_running_loop().create_future())
        self._events.append(asked)
        self._wake.set()
        await asked.applied

    @property
    def backlog(self) -> int:
        """The number of queued events."""
        return len(self._events)

    async def run(self) -> None:
        """Runs passes until cancelled; an error of the machine ends it."""
        running = asyncio.get_running_loop()
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                timer = running.call_later(wait_s, self._wake.set)
                await self._wake.wait()
                timer.cancel()
            self._wake.clear()
            self.run_once()
            await asyncio.sleep(0)

    def run_once(self) -> None:
        """Runs one pass: applies events, advances time if due, and decides if the machine asks.

        An error leaves the event marked that raised it.
        """
        self.turns += 1
        if 0.0 < self._ticked_s < self._clock() - STALL_S:
            self._apply(ControlStalled(), self._clock())
        end = time.monotonic() + (UNDERLOADED_SLICE_S if self._last_cycle_placed_all else TURN_S)
        while self._events and time.monotonic() < end:
            self._take(self._events.popleft())
        now_s = self._clock()
        if now_s - self._ticked_s >= TICK_S or now_s < self._ticked_s:
            self._ticked_s = now_s
            self._apply(TimeAdvanced(), now_s)
        if self.machine.wants_decision and time.monotonic() >= self._decide_from():
            self._decide_now()
        self._marker.end()
        self._executor.flush()

    def _wait_s(self) -> float:
        if self._events:
            return 0.0
        until_tick = TICK_S - (self._clock() - self._ticked_s)
        if not self.machine.wants_decision:
            return max(0.0, min(until_tick, TICK_S))
        return max(0.0, min(until_tick, self._decide_from() - time.monotonic()))

    def _decide_from(self) -> float:
        """Returns when to decide next: at once if no event and no store task waits."""
        return (
            self._next_decide_busy_s
            if self._events or self._executor.backlog
            else self._next_decide_idle_s
        )

    def _take(self, item: Event | _Asked) -> None:
        if not isinstance(item, _Asked):
            self._apply(item, self._clock())
            return
        try:
            self._apply(item.event, self._clock())
        except Exception as e:
            if not item.applied.done():
                item.applied.set_exception(e)
            raise
        if not item.applied.done():
            item.applied.set_result(None)

    def _apply(self, event: Event, now_s: float) -> None:
        self._marker.begin(event)
        commands = self.machine.apply(event, now_s)
        self.applied += 1
        if not commands:
            return
        if type(event) is WorkerConnected:
            # The answer to the worker's full state must be the first message; the session drops
            # assignments that come before it.
            commands.sort(key=_after_keep)
        self._executor.execute(commands)

    def _decide_now(self) -> None:
        started = time.monotonic()
        now_s = self._clock()
        self._marker.begin_decision()
        decision = self._decide(self.machine.snapshot(now_s))
        self._apply(PlacementDecided(decision), now_s)
        ended = time.monotonic()
        self.ticks.observe(ended - started)
        took_s = DECIDE_DUTY_RATIO * (ended - started)
        self._last_cycle_placed_all = not decision.rejections
        self._next_decide_busy_s = ended + max(DECIDE_GAP_S, took_s)
        self._next_decide_idle_s = ended + (took_s if took_s > SHORT_S else 0.0)


def _after_keep(command: Command) -> bool:
    return type(command) is not ConfirmAttempts
