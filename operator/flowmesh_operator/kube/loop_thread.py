"""Work in a thread and an event loop of its own, that goes on however busy the main loop is.

The Lease is renewed in one: a control plane that takes up thousands of runs must not lose it. kopf
runs in another: it cancels whatever it finds in its loop when it ends, and takes signal handlers.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable

STOP_S = 10.0


class LoopThread:
    """One piece of work, made in the main event loop."""

    def __init__(self, name: str, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Takes the work; nothing runs yet.

        Args:
            name: of the thread.
            work: runs in the thread; told to end by the event.
        """
        self._work = work
        self._main = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._main.create_future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    async def run(self) -> None:
        """Starts the work and returns when it has ended; cancelled, it leaves it running.

        Raises:
            BaseException: what the work raised.
        """
        self._thread.start()
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Tells the work to end and waits for it."""
        if not self._thread.is_alive():
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.wait([self._ended], timeout=STOP_S)

    def _serve(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._begin())
        except BaseException as e:  # told to the main loop, whatever it is
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
        self._ended.exception()  # seen, even if nobody waits any more
