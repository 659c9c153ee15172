"""Ctrl-C: the first stops the command in order, the second exits at once.

:func:`leave_at_second` installs the handlers for the whole process; :class:`Interrupts` replaces
them while a command follows runs, which the first Ctrl-C cancels.
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
    """Exits the process at once with a message; shows the cursor if progress has hidden it."""
    restored = f"{SHOW_CURSOR}\n" if os.isatty(_STDERR) else ""
    # Not by sys.stderr, which a progress view may be using.
    os.write(_STDERR, f"{restored}{said}\n".encode())
    os._exit(code)


def leave_at_second() -> None:
    """Makes the first SIGINT raise KeyboardInterrupt and the second one end the process.

    The cleanup after the first is thus never interrupted by a second exception. A process that was
    started with SIGINT ignored keeps ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _first)


def _first(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    # Imported here: only a second Ctrl-C needs it.
    import psutil  # noqa: PLC0415

    for child in psutil.Process().children(recursive=True):  # workers and their children
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    leave(ExitCode.INTERRUPTED, "exited at once")


def end_quickly(code: int) -> NoReturn:
    """Exits the process after all work is done, without the interpreter's shutdown.

    The shutdown takes a part of a second, in which signals have no handler.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader has exited
            stream.flush()
    os._exit(code)


class Interrupts:
    """Records SIGINT during its block in place of raising KeyboardInterrupt.

    After the first one, the next calls ``at_once``, also after the end of the block.
    """

    def __init__(self, *, at_once: Callable[[], None]) -> None:
        """Installs nothing yet; ``at_once`` is called by the second SIGINT."""
        self._at_once = at_once
        # Not an Event: its lock is not reentrant, and the signal may arrive while it is taken.
        self._wake = SimpleQueue[None]()
        self._previous: Any = None
        self.asked = False

    def __enter__(self) -> "Interrupts":
        """Installs the handler."""
        self._previous = signal.signal(signal.SIGINT, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Restores the previous handler, unless a SIGINT was received."""
        if not self.asked:
            signal.signal(signal.SIGINT, self._previous)

    def wait(self, timeout_s: float) -> None:
        """Sleeps until the timeout or the first Ctrl-C."""
        with contextlib.suppress(Empty):
            self._wake.get(timeout=timeout_s)

    def _received(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            self._at_once()
        self.asked = True
        self._wake.put(None)
