"""Few places for many uploads: no tenant takes them all while others wait."""

import asyncio
import threading
from contextlib import AsyncExitStack

import pytest

from flowmesh_control.evaluators.fair_places import FairPlaces, in_thread


class Room:
    """Places whose holders stay until they are let go."""

    def __init__(self, count: int) -> None:
        self.places = FairPlaces(count)
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Each is of the tenant that its name begins with."""
        for name in names:
            self.tasks[name] = asyncio.create_task(self._stay(name))
            await settled()

    async def go(self, name: str) -> None:
        self.tasks[name].cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.tasks[name]
        await settled()

    async def _stay(self, name: str) -> None:
        async with self.places.place(name[0]):
            self.inside.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.inside.remove(name)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_tenant_alone_has_all_places_in_order() -> None:
    room = Room(2)
    await room.come("a1", "a2", "a3")
    assert room.inside == ["a1", "a2"]
    await room.go("a1")
    assert room.inside == ["a2", "a3"]


async def test_a_tenant_has_one_place_while_another_waits() -> None:
    room = Room(2)
    await room.come("a1", "a2", "a3", "a4", "b1", "b2")
    await room.go("a1")
    assert room.inside == ["a2", "b1"]
    await room.go("a2")
    assert room.inside == ["b1", "a3"]
    await room.go("b1")
    assert room.inside == ["a3", "b2"]


async def test_a_waiter_that_leaves_takes_no_place() -> None:
    room = Room(1)
    await room.come("a1", "b1", "c1")
    await room.go("b1")
    await room.go("a1")
    assert room.inside == ["c1"]


async def test_a_place_granted_to_a_leaving_waiter_is_free_again() -> None:
    places = FairPlaces(1)
    async with AsyncExitStack() as first:
        await first.enter_async_context(places.place("a"))
        waiting = asyncio.create_task(places.place("b").__aenter__())
        await settled()
    waiting.cancel()  # it was granted, and does not know yet
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5), places.place("c"):
        pass


async def test_a_tenant_has_at_most_its_part_of_the_places() -> None:
    room = Room(3)
    room.places = FairPlaces(3, 2)
    await room.come("a1", "a2", "a3", "b1")
    assert room.inside == ["a1", "a2", "b1"]
    await room.go("b1")
    assert room.inside == ["a1", "a2"]
    await room.go("a2")
    assert room.inside == ["a1", "a3"]


async def test_a_place_is_taken_until_its_thread_has_ended() -> None:
    places, may_end, begun = FairPlaces(1), threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return may_end.wait(30)

    async def worked() -> None:
        async with places.place("a"):
            await in_thread(work)

    leaving = asyncio.create_task(worked())
    await asyncio.to_thread(begun.wait, 30)
    leaving.cancel()
    waiting = asyncio.create_task(places.place("b").__aenter__())
    await settled()
    assert not waiting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await waiting
