"""Virtual time: calls at moments, made in order and without waiting."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable

_DIGITS = 9


class Call:
    """A call that has not been made yet."""

    __slots__ = ("cancelled", "make")

    def __init__(self, make: Callable[[], None]) -> None:
        self.make = make
        self.cancelled = False

    def cancel(self) -> None:
        """Does not make it any more."""
        self.cancelled = True


class Timeline:
    """A clock that goes on when nothing is left to do at a moment.

    Attributes:
        stopped: whether no further call is made.
    """

    def __init__(self, begin_s: float) -> None:
        self.now_s = begin_s
        self.stopped = False
        self._begin_s = begin_s
        self._numbers = itertools.count()
        self._ready: deque[Call] = deque()
        self._later: list[tuple[float, int, Call]] = []

    @property
    def t(self) -> float:
        """Seconds since the beginning."""
        return self.now_s - self._begin_s

    def soon(self, make: Callable[[], None]) -> Call:
        """Makes a call at this moment, after those that were asked for before."""
        call = Call(make)
        self._ready.append(call)
        return call

    def after(self, delay_s: float, make: Callable[[], None]) -> Call:
        """Makes a call in so many seconds."""
        return self.at(self.now_s + max(0.0, delay_s), make)

    def at(self, moment_s: float, make: Callable[[], None]) -> Call:
        """Makes a call at a moment of the clock."""
        call = Call(make)
        # Rounded, so that sums of durations are equal in whatever order they are made.
        heapq.heappush(self._later, (round(moment_s, _DIGITS), next(self._numbers), call))
        return call

    def run(self, until_s: float, end_instant: Callable[[], bool]) -> None:
        """Makes all calls before a time since the beginning.

        Args:
            until_s: since the beginning.
            end_instant: called when nothing is left to do at a moment; returns whether that has
                changed.
        """
        end_s = round(self._begin_s + until_s, _DIGITS)
        while not self.stopped:
            self._take_due()
            if self._ready:
                call = self._ready.popleft()
                if not call.cancelled:
                    call.make()
            elif not end_instant():
                if not self._later or self._later[0][0] >= end_s:
                    return
                self.now_s = max(self.now_s, self._later[0][0])

    def _take_due(self) -> None:
        while not self._ready and self._later and self._later[0][0] <= self.now_s:
            moment_s = self._later[0][0]
            while self._later and self._later[0][0] == moment_s:
                self._ready.append(heapq.heappop(self._later)[2])
