"""Pieces that are read at once: their order, how many there are, and what an error leaves."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from flowmesh_store.ordered_pieces import in_order

CONTENT = bytes(range(250))


class Source:
    """Reads pieces of 10 bytes, each answered when the test says so."""

    def __init__(self) -> None:
        self.asked: dict[int, asyncio.Future[None]] = {}

    async def read(self, start: int, stop: int) -> bytes:
        self.asked[start] = asyncio.get_running_loop().create_future()
        await self.asked[start]
        return CONTENT[start:stop]

    def answer(self, start: int, error: Exception | None = None) -> None:
        if error is None:
            self.asked[start].set_result(None)
        else:
            self.asked[start].set_exception(error)

    def pieces(self, limit: asyncio.Semaphore) -> AsyncGenerator[bytes]:
        return in_order(self.read, 10, len(CONTENT) - 3, limit, piece_bytes=10)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def answer_all(source: Source, reader: "asyncio.Task[bytes]") -> None:
    while not reader.done():
        for start in sorted(source.asked, reverse=True):
            if not source.asked[start].done():
                source.answer(start)
        await settle()


async def joined(pieces: AsyncGenerator[bytes]) -> bytes:
    async with aclosing(pieces):
        return b"".join([piece async for piece in pieces])


async def test_pieces_come_in_order_however_they_are_answered() -> None:
    source, limit = Source(), asyncio.Semaphore(4)
    reader = asyncio.create_task(joined(source.pieces(limit)))
    await answer_all(source, reader)
    assert await reader == CONTENT[10:-3]


async def test_as_many_are_read_at_once_as_there_are_places() -> None:
    source, limit = Source(), asyncio.Semaphore(4)
    pieces = source.pieces(limit)
    reader = asyncio.ensure_future(anext(pieces))
    await settle()
    assert sorted(source.asked) == [10, 20, 30, 40]
    source.answer(30)
    await settle()
    assert sorted(source.asked) == [10, 20, 30, 40]  # read, and not handed on: it keeps its place
    source.answer(10)
    assert await reader == CONTENT[10:20]
    following = asyncio.ensure_future(anext(pieces))
    await settle()
    assert sorted(source.asked) == [10, 20, 30, 40, 50]
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await pieces.aclose()


async def test_contents_that_share_places_do_not_wait_for_each_other_for_ever() -> None:
    limit = asyncio.Semaphore(3)
    sources = [Source() for _ in range(3)]
    readers = [asyncio.create_task(joined(s.pieces(limit))) for s in sources]
    while not all(r.done() for r in readers):
        for source in sources:
            for start in source.asked:
                if not source.asked[start].done():
                    source.answer(start)
        await settle()
    assert [await r for r in readers] == [CONTENT[10:-3]] * 3


async def test_an_error_ends_the_other_reads_and_gives_their_places_back() -> None:
    source, limit = Source(), asyncio.Semaphore(4)
    reader = asyncio.create_task(joined(source.pieces(limit)))
    await settle()
    source.answer(10, OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await reader
    assert all(f.cancelled() for start, f in source.asked.items() if start > 10)
    for _ in range(4):
        await asyncio.wait_for(limit.acquire(), 1)


async def test_a_reader_that_stops_gives_all_places_back() -> None:
    source, limit = Source(), asyncio.Semaphore(4)
    pieces = source.pieces(limit)
    reader = asyncio.ensure_future(anext(pieces))
    await settle()
    source.answer(10)
    await reader
    await pieces.aclose()
    for _ in range(4):
        await asyncio.wait_for(limit.acquire(), 1)
    assert limit.locked()
