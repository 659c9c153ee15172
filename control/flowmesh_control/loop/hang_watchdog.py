"""Ends the process when the event loop hangs; a supervisor, or the user, starts it again.

Time is counted in the watchdog's own wakes. A process that was stopped and continues, or a laptop
that slept, has missed wakes and turns alike, so that is no hang. A call that holds Python's global
lock stops this thread too: on a cluster the liveness probe then ends the process.
"""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable

from flowmesh_control.loop.current_event import CurrentEvent

log = logging.getLogger("flowmesh.control")

WAKES = 20
"""Wakes in a row without a turn of the event loop that make a hang."""
EXIT_HUNG = 75
"""The exit code of a process that ended itself because it hung (``EX_TEMPFAIL`` of sysexits.h)."""


class HangWatchdog:
    """A thread that watches the event loop of the thread that starts it."""

    def __init__(
        self,
        *,
        turns: Callable[[], int],
        current: Callable[[], CurrentEvent | None],
        hang_s: float,
    ) -> None:
        """Does not watch yet.

        Args:
            turns: returns how many turns the event loop has made.
            current: returns the event that is being applied.
            hang_s: how long a hang is, in ``WAKES`` wakes.
        """
        self._turns = turns
        self._current = current
        self._hang_s = hang_s
        self._watched = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hang-watchdog", daemon=True)

    def start(self) -> None:
        """Watches until stopped."""
        self._watched = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        """Stops watching; may be called more than once, also before :meth:`start`."""
        self._stopped.set()

    def _watch(self) -> None:
        seen, wakes = -1, 0
        while not self._stopped.wait(self._hang_s / WAKES):
            turns = self._turns()
            wakes = wakes + 1 if turns == seen else 0
            seen = turns
            if wakes >= WAKES:
                self._end()

    def _end(self) -> None:
        """Ends the process; the marker tells the next one what it was working on."""
        current = self._current()
        work = "no event" if current is None else f"{current.kind} {current.run or current.worker}"
        stack = "".join(traceback.format_stack(sys._current_frames().get(self._watched)))
        message = f"the control plane made no progress for {self._hang_s:g} s and exits ({work})"
        log.critical("%s\n%s", message, stack)
        sys.stderr.write(f"{message}; start it again, unfinished runs continue\n")
        sys.stderr.flush()
        os._exit(EXIT_HUNG)
