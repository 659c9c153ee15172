"""Virtual time: the event queue, and all randomness of a simulation.

Events at the same time run in the order in which they were scheduled, so that a simulation is the
same sequence on every machine.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Timer = list[Any]
"""An entry of the queue: time, number, callable (None if cancelled), arguments."""


class Environment:
    """The event queue and the virtual clock.

    Attributes:
        now_s: virtual seconds since the simulation began.
        events: number of executed events.
    """

    def __init__(self) -> None:
        """Starts at 0 with an empty queue."""
        self.now_s = 0.0
        self.events = 0
        self._number = 0
        self._queue: list[Timer] = []

    def at(self, time_s: float, call: Callable[..., None], *args: Any) -> Timer:
        """Schedules a call at a time, or now if that has passed."""
        self._number += 1
        timer: Timer = [max(time_s, self.now_s), self._number, call, args]
        heappush(self._queue, timer)
        return timer

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> Timer:
        """Schedules a call after a delay."""
        return self.at(self.now_s + delay_s, call, *args)

    def run(self, *, until_s: float, over: Callable[[], bool]) -> None:
        """Executes events in order until ``over`` is true, the queue is empty, or ``until_s``."""
        queue = self._queue
        while queue and not over():
            time_s, _, call, args = queue[0]
            if call is None:
                heappop(queue)
                continue
            if time_s > until_s:
                self.now_s = until_s
                return
            heappop(queue)
            self.now_s = time_s
            self.events += 1
            call(*args)


def cancel(timer: Timer | None) -> None:
    """Cancels a timer; does nothing if it has fired."""
    if timer is not None:
        timer[2] = None


class RandomStreams:
    """All randomness: one stream for each purpose, so that purposes do not affect each other."""

    def __init__(self, seed: int | str) -> None:
        """Derives all streams from one seed."""
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """Returns the stream of a purpose."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = self.fresh(name)
        return found

    def fresh(self, name: str) -> random.Random:
        """Returns a new stream at each call, for values that must not depend on earlier ones."""
        return random.Random(f"{self.seed}/{name}")
