"""Runs a coroutine in a thread with its own event loop, independent of how busy the main loop is.

One renews the Lease: a control plane that recovers thousands of runs must not lose it. Another runs
kopf, which cancels every task of its loop when it ends and installs signal handlers.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

STOP_S = 10.0


class LoopThread:
    """One coroutine in its own thread; created in the main event loop."""

    def __init__(self, name: str, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Starts nothing yet.

        Args:
            name: the thread's name.
            work: runs in the thread; must return when its event is set.
        """
        self._work = work
        self._main = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._main.create_future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    async def run(self) -> None:
        """Starts the work and waits for its end; cancelling the wait does not end the work.

        Raises:
            BaseException: the error that the work raised.
        """
        self._thread.start()
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Sets the work's event and waits for its end, at most ``STOP_S``."""
        if not self._thread.is_alive():
            return
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # closed: the work has ended by itself just now
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wait([self._ended], timeout=STOP_S)

    def _serve(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._begin())
        except BaseException as e:  # raised by run() in the main loop
            error = e
        if not self._main.is_closed():
            self._main.call_soon_threadsafe(self._end, error)

    async def _begin(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        await self._work(self._stop)

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self._ended.set_result(None)
            return
        self._ended.set_exception(error)
        self._ended.exception()  # retrieved: asyncio logs the errors that no caller retrieves
