"""Has requests of a service without replicas wait for one, for a bounded time."""

import asyncio


class ReplicaArrivals:
    """Tells waiting requests that a hub has reported a replica that was not there before."""

    def __init__(self, within_s: float) -> None:
        """Waits so long for a replica at most."""
        self.within_s = within_s
        self._next = asyncio.Event()

    def happened(self) -> None:
        """Lets all go on that wait."""
        self._next.set()
        self._next = asyncio.Event()

    async def one_before(self, until_s: float) -> bool:
        """Waits for the next replica, of any service; returns whether one came in time.

        Args:
            until_s: by the event loop's clock.
        """
        try:
            async with asyncio.timeout_at(until_s):
                await self._next.wait()
        except TimeoutError:
            return False
        return True
