"""A host's heartbeat: a thread that writes one byte every few seconds into a pipe of the agent.

It is a thread of its own, so that it beats while an engine loads, trains or generates; it shares no
lock with the engine but the interpreter's. A host whose process is stopped, or whose interpreter is
stuck, stops beating, and the agent ends it (``heartbeat_watch``).
"""

import os
import threading

BEAT_S = 5.0
"""How often a host beats."""


def start_heartbeat(descriptor: int, every_s: float) -> None:
    """Beats from now on until the process ends.

    Args:
        descriptor: the writing end of the agent's pipe.
        every_s: the time between two beats.
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
            pass  # the agent has not read for hours; it has beats enough to read
        except OSError:
            return  # the agent is gone
        pause.wait(every_s)
