"""The single writer: every event passes here, one after the other, through the machine.

Events come from the gateway, the API and the work outside; commands go to the executor, whose
answers are events again. A turn applies what has gathered, ticks four times a second, and lets the
scheduler decide when the machine asks for it. A turn is synchronous, so that the simulator and
tests can take turns by hand; :meth:`EventLoop.run` takes them as events come.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flowmesh_control.loop.clock import Clock
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
"""How often time itself is an event."""
STALL_S = 2.0
"""Where there was no tick for so long, the process stood still: attempts were not observed."""
DECIDE_GAP_S = 0.004
"""The least time between two decisions while there is other work to do: ready work gathers."""
REST = 1.0
"""After a decision at least so many times its duration goes to events, however much is ready."""
SHORT_S = 0.001
"""A decision as short as this need not rest: no timer is finer."""
TURN_S = 0.006
"""After this long a turn ends: sockets are served, and workers get what is decided, while the rest
of what has gathered is worked on."""
HUNGRY_TURN_S = 0.002
"""The same after a decision that found a place for all: workers have less to do than they could."""
TICK_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)


@dataclass(slots=True)
class _Asked:
    """An event whose sender waits until it is applied."""

    event: Event
    applied: asyncio.Future[None]


class EventLoop:
    """Applies events in order of arrival and decides."""

    def __init__(
        self,
        *,
        machine: MachinePort,
        decide: Callable[[Snapshot], Decision],
        executor: Executor,
        clock: Clock,
    ) -> None:
        """Takes the machine, the scheduler, and who does the commands."""
        self.machine = machine
        self._decide = decide
        self._executor = executor
        self._clock = clock
        self._events: deque[Event | _Asked] = deque()
        self._wake = asyncio.Event()
        self._ticked_s = float("-inf")
        self._gathered_s = float("-inf")
        self._rested_s = float("-inf")
        self._hungry = True
        self.applied = 0
        self.ticks = Histogram(TICK_BOUNDS_S)

    def post(self, event: Event) -> None:
        """Queues an event."""
        self._events.append(event)
        self._wake.set()

    async def ask(self, event: Event) -> None:
        """Queues an event and waits until the machine has taken it in.

        Raises:
            InvariantError: the machine refused it.
        """
        asked = _Asked(event, asyncio.get_running_loop().create_future())
        self._events.append(asked)
        self._wake.set()
        await asked.applied

    @property
    def backlog(self) -> int:
        """How many events wait."""
        return len(self._events)

    async def run(self) -> None:
        """Takes turns until cancelled; an error of the machine ends it."""
        running = asyncio.get_running_loop()
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                timer = running.call_later(wait_s, self._wake.set)
                await self._wake.wait()
                timer.cancel()
            self._wake.clear()
            self.turn()
            await asyncio.sleep(0)

    def turn(self) -> None:
        """Applies what has gathered, ticks when it is time, decides when the machine wants it."""
        if 0.0 < self._ticked_s < self._clock() - STALL_S:
            self._apply(ControlStalled(), self._clock())
        end = time.monotonic() + (HUNGRY_TURN_S if self._hungry else TURN_S)
        while self._events and time.monotonic() < end:
            self._take(self._events.popleft())
        now_s = self._clock()
        if now_s - self._ticked_s >= TICK_S or now_s < self._ticked_s:
            self._ticked_s = now_s
            self._apply(TimeAdvanced(), now_s)
        if self.machine.wants_decision and time.monotonic() >= self._decide_from():
            self._decide_now()
        self._executor.flush()

    def _wait_s(self) -> float:
        if self._events:
            return 0.0
        until_tick = TICK_S - (self._clock() - self._ticked_s)
        if not self.machine.wants_decision:
            return max(0.0, min(until_tick, TICK_S))
        return max(0.0, min(until_tick, self._decide_from() - time.monotonic()))

    def _decide_from(self) -> float:
        """When to decide next: at once where there is nothing else to do."""
        return self._gathered_s if self._events or self._executor.backlog else self._rested_s

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
        commands = self.machine.apply(event, now_s)
        self.applied += 1
        if not commands:
            return
        if type(event) is WorkerConnected:
            # The answer to a full state opens the connection; what is to be taken up follows it.
            commands.sort(key=_after_keep)
        self._executor.execute(commands)

    def _decide_now(self) -> None:
        started = time.monotonic()
        now_s = self._clock()
        decision = self._decide(self.machine.snapshot(now_s))
        self._apply(PlacementDecided(decision), now_s)
        ended = time.monotonic()
        self.ticks.observe(ended - started)
        took_s = REST * (ended - started)
        self._hungry = not decision.rejections
        self._gathered_s = ended + max(DECIDE_GAP_S, took_s)
        self._rested_s = ended + (took_s if took_s > SHORT_S else 0.0)


def _after_keep(command: Command) -> bool:
    return type(command) is not ConfirmAttempts
