"""A host's heartbeat: a thread that writes a byte into a pipe of the agent every few seconds.

A separate thread continues while an engine loads, trains or generates: it shares no lock with the
engine except the interpreter's. A host whose process is stopped, or whose interpreter is stuck,
stops beating, and the agent kills it (``heartbeat_watch``).
"""

import os
import threading

BEAT_S = 5.0
"""Seconds between two heartbeats."""


def start_heartbeat(descriptor: int, every_s: float) -> None:
    """Starts the heartbeat; it ends with the process.

    Args:
        descriptor: the writing end of the agent's pipe.
        every_s: the time between two heartbeats.
    """
    os.set_blocking(descriptor, False)
    thread = threading.Thread(
        target=_beat, args=(descriptor, every_s), name="heartbeat", daemon=True
    )
    thread.start()


def _beat(descriptor: int, every_s: float) -> None:
    pause = threading.Event()
    while True:
        try:
            os.write(descriptor, b".")
        except BlockingIOError:
            pass  # the pipe is full of unread heartbeats: the agent has not read for hours
        except OSError:
            return  # the agent has exited
        pause.wait(every_s)
