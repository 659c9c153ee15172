"""Sends messages to the agent from any thread: engines report from their worker threads."""

import asyncio
import threading
from collections.abc import Callable

from flowmesh_worker.ipc.frames import FromHost


class ThreadSafeSender:
    """Sends messages on the event loop, in the order in which a thread calls it."""

    __slots__ = ("_loop", "_send", "_thread")

    def __init__(self, send: Callable[[FromHost], None]) -> None:
        """Binds ``send`` to the event loop that runs now."""
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def __call__(self, message: FromHost) -> None:
        """Sends a message, before any that the event loop sends later."""
        if threading.get_ident() == self._thread:
            self._send(message)
        else:
            self._loop.call_soon_threadsafe(self._send, message)
