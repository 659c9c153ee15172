"""Ctrl-C: the first asks, the second leaves at once, wherever the command is by then.

:func:`leave_at_second` holds from the start of the process to its end; :class:`Interrupts` stands
over it where a command can do better than to break off: while it follows runs.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, NoReturn

from flowmesh_cli.exit_codes import ExitCode

_STDERR = 2
SHOW_CURSOR = "\x1b[?25h"


def leave(code: int, said: str) -> NoReturn:
    """Ends the process here and now; what was drawing has no time to give the cursor back."""
    given_back = f"{SHOW_CURSOR}\n" if os.isatty(_STDERR) else ""
    # Past sys.stderr, which belongs to whatever is drawing.
    os.write(_STDERR, f"{given_back}{said}\n".encode())
    os._exit(code)


def leave_at_second() -> None:
    """From now on the first SIGINT raises KeyboardInterrupt, and the second ends the process.

    What cleans up after the first is not interrupted by a second exception. A process that was
    started to ignore SIGINT goes on to ignore it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _first)


def _first(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    # Imported here: no command that ends in peace needs it.
    import psutil  # noqa: PLC0415

    for child in psutil.Process().children(recursive=True):  # workers, and what they have started
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    leave(ExitCode.INTERRUPTED, "left at once")


def end_quickly(code: int) -> NoReturn:
    """Ends the process when all is done, without the interpreter's own end.

    That takes a part of a second, in which a signal has no handler any more.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone
            stream.flush()
    os._exit(code)


class Interrupts:
    """While entered, counts SIGINT in place of raising KeyboardInterrupt.

    Once one was counted, the next does what the second does, also after it was left.
    """

    def __init__(self, *, at_once: Callable[[], None]) -> None:
        """Takes what the second one does."""
        self._at_once = at_once
        # No event: its lock is not reentrant, and the signal may come while it is held.
        self._wake = SimpleQueue[None]()
        self._previous: Any = None
        self.asked = False

    def __enter__(self) -> "Interrupts":
        """Takes the signal over."""
        self._previous = signal.signal(signal.SIGINT, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Gives the signal back, unless the next one is the second."""
        if not self.asked:
            signal.signal(signal.SIGINT, self._previous)

    def wait(self, timeout_s: float) -> None:
        """Sleeps, but not past a Ctrl-C that nobody has seen."""
        with contextlib.suppress(Empty):
            self._wake.get(timeout=timeout_s)

    def _received(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self._at_once()
        self.asked = True
        self._wake.put(None)
