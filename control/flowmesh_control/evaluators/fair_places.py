"""Limits how much untrusted content is processed at once, and shares the places among tenants."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    tenant: str
    granted: "asyncio.Future[None]"


class FairPlaces:
    """A semaphore that gives the next free place to the tenant that has the fewest.

    So a tenant has at most one of two places while another tenant waits.
    """

    def __init__(self, count: int) -> None:
        """Starts with ``count`` free places."""
        self._free = count
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a place, and occupies it for the duration of the context."""
        await self._acquire(tenant)
        try:
            yield
        finally:
            self._release(tenant)

    async def _acquire(self, tenant: str) -> None:
        waiter = _Waiter(tenant, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._grant()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.granted.cancelled():  # it was granted while being cancelled
                self._release(tenant)
            raise

    def _release(self, tenant: str) -> None:
        self._free += 1
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]
        self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            # Among equals ``min`` returns the first, which has waited longest.
            waiter = min(self._waiting, key=lambda w: self._taken[w.tenant])
            self._waiting.remove(waiter)
            if waiter.granted.cancelled():
                continue
            self._free -= 1
            self._taken[waiter.tenant] += 1
            waiter.granted.set_result(None)
