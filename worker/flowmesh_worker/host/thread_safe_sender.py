"""Sending to the agent from any thread: engines report from wherever their work runs."""

import asyncio
import threading
from collections.abc import Callable

from flowmesh_worker.ipc.frames import FromHost


class ThreadSafeSender:
    """Sends messages on the event loop, in the order in which one thread says them."""

    __slots__ = ("_loop", "_send", "_thread")

    def __init__(self, send: Callable[[FromHost], None]) -> None:
        """Takes what sends on the loop that runs now."""
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def __call__(self, message: FromHost) -> None:
        """Sends a message; what the loop itself sends later comes after it."""
        if threading.get_ident() == self._thread:
            self._send(message)
        else:
            self._loop.call_soon_threadsafe(self._send, message)
