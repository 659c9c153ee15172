"""Messages that are sent together leave in one system call."""

import asyncio
import socket

from flowmesh_core.protocol.framed_connection import FramedConnection
from flowmesh_core.protocol.serving import Abort, Piece


class End(FramedConnection[Piece | Abort], asyncio.Protocol):
    """One end that keeps what it received."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.received: list[Piece | Abort] = []
        self.writes = 0
        self.has_last = asyncio.Event()
        super().__init__(
            Piece | Abort, self._receive, lambda: None, loop.call_soon, later=loop.call_later
        )

    def _receive(self, message: Piece | Abort) -> None:
        self.received.append(message)
        if isinstance(message, Abort):
            self.has_last.set()

    def connection_made(self, transport: object) -> None:
        end = self

        class Counting:
            """Counts the writes to a transport."""

            def __getattr__(self, name: str) -> object:
                end.writes += name == "write"
                return getattr(transport, name)

        super().connection_made(Counting())


async def writes_a_message(*, flushes: bool) -> float:
    """Sends thirty times ten messages over a socket; returns the writes for each message."""
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    _, sender = await loop.create_connection(End, sock=left)
    _, receiver = await loop.create_connection(End, sock=right)
    sent = []
    for turn in range(30):
        for n in range(10):
            sent.append(Piece(f"c{n}", b"x" * turn))
            sender.send(sent[-1])
            if flushes:
                sender.flush()
        await asyncio.sleep(0)
    sender.send(Abort("last"))
    async with asyncio.timeout(10):
        await receiver.has_last.wait()
    assert receiver.received[:-1] == sent
    sender.close()
    receiver.close()
    return (sender.writes - 1) / len(sent)


async def test_a_busy_link_needs_few_system_calls_a_message() -> None:
    assert await writes_a_message(flushes=False) <= 0.3
    assert await writes_a_message(flushes=True) == 1.0


async def test_a_deferred_message_leaves_with_the_next_one_and_else_soon_by_itself() -> None:
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    _, sender = await loop.create_connection(End, sock=left)
    _, receiver = await loop.create_connection(End, sock=right)
    deferred, sent = Piece("deferred", b""), Piece("sent", b"")
    sender.defer(deferred)
    await asyncio.sleep(0)
    assert sender.writes == 0
    sender.send(sent)
    sender.defer(Abort("last"))  # in time for the frame of this iteration
    async with asyncio.timeout(10):
        await receiver.has_last.wait()
    assert (receiver.received, sender.writes) == ([deferred, sent, Abort("last")], 1)
    receiver.has_last.clear()
    sender.defer(Abort("alone"))
    async with asyncio.timeout(10):
        await receiver.has_last.wait()
    assert sender.writes == 2
    sender.close()
    receiver.close()
