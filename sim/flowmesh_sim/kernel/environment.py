"""Virtual time: an event queue, and all randomness of a simulation.

What happens at the same moment happens in the order in which it was asked for, so that a run is one
sequence whatever machine it is computed on.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Timer = list[Any]
"""An entry of the queue: time, number, callable, arguments; without callable it was cancelled."""


class Environment:
    """The queue and the clock.

    Attributes:
        now_s: virtual seconds since the simulation began.
        events: how many were executed.
    """

    def __init__(self) -> None:
        """Starts at zero with nothing to do."""
        self.now_s = 0.0
        self.events = 0
        self._number = 0
        self._queue: list[Timer] = []

    def at(self, time_s: float, call: Callable[..., None], *args: Any) -> Timer:
        """Calls at a moment; one that has passed is now."""
        self._number += 1
        timer: Timer = [max(time_s, self.now_s), self._number, call, args]
        heappush(self._queue, timer)
        return timer

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> Timer:
        """Calls after so many seconds."""
        return self.at(self.now_s + delay_s, call, *args)

    def run(self, *, until_s: float, over: Callable[[], bool]) -> None:
        """Executes in order until it is over, nothing is left, or the time has come."""
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
    """Lets a timer pass without a call; harmless for one that has passed."""
    if timer is not None:
        timer[2] = None


class RandomStreams:
    """All randomness: one stream a purpose, so that a draw more of one changes no other."""

    def __init__(self, seed: int | str) -> None:
        """Takes the seed that everything follows from."""
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, name: str) -> random.Random:
        """The stream of a purpose."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = self.fresh(name)
        return found

    def fresh(self, name: str) -> random.Random:
        """A stream that begins anew at each call: for what must not depend on when it is drawn."""
        return random.Random(f"{self.seed}/{name}")
