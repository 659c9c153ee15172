"""Limits how much untrusted content is processed at once, and shares the places among tenants."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    tenant: str
    granted: "asyncio.Future[None]"


class FairPlaces:
    """A semaphore that gives the next free place to the tenant that has the fewest.

    So a tenant has at most one of two places while another tenant waits.
    """

    def __init__(self, count: int, of_one: int = 0) -> None:
        """Starts with free places.

        Args:
            count: of all tenants.
            of_one: how many of them a tenant may have; 0 for all.
        """
        self._free = count
        self._of_one = of_one or count
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
            if self._taken[waiter.tenant] >= self._of_one:
                return
            self._waiting.remove(waiter)
            if waiter.granted.cancelled():
                continue
            self._free -= 1
            self._taken[waiter.tenant] += 1
            waiter.granted.set_result(None)


async def in_thread(
    work: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs
) -> _Result:
    """Runs work in a thread, and waits for its end also where the caller is cancelled.

    A thread cannot be stopped: what its place would be given to would run beside it.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # retrieved: nothing waits for it any more
        raise
