"""Ctrl-C: the first asks, the second leaves at once."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

_STDERR = 2
SHOW_CURSOR = "\x1b[?25h"


def leave(code: int, said: str) -> NoReturn:
    """Ends the process here and now; what was drawing has no time to give the cursor back."""
    given_back = f"{SHOW_CURSOR}\n" if os.isatty(_STDERR) else ""
    # Past sys.stderr, which belongs to whatever is drawing.
    os.write(_STDERR, f"{given_back}{said}\n".encode())
    os._exit(code)


class Interrupts:
    """While entered, counts SIGINT in place of raising KeyboardInterrupt."""

    def __init__(self, *, at_once: Callable[[], None]) -> None:
        """Takes what the second one does."""
        self._at_once = at_once
        self._wake = threading.Event()
        self._previous: Any = None
        self.asked = False

    def __enter__(self) -> "Interrupts":
        """Takes the signal over."""
        self._previous = signal.signal(signal.SIGINT, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Gives the signal back."""
        signal.signal(signal.SIGINT, self._previous)

    def wait(self, timeout_s: float) -> None:
        """Sleeps, but not past a Ctrl-C that nobody has seen."""
        if self._wake.wait(timeout_s):
            self._wake.clear()

    def _received(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self._at_once()
        self.asked = True
        self._wake.set()
