"""A link to another hub costs no timer for each value."""

import asyncio
import socket
from typing import Any, cast

from flowmesh_core.protocol.serving import (
    SERVING_VERSION,
    FromPeer,
    PassedValue,
    PeerHello,
    PeerValue,
)
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.serving import peer_link
from flowmesh_worker.serving.peer_link import Delivery, PeerLink


class Receiver:
    """The part of a hub that hears of lost links."""

    def add_peer_value(self, *_: Any) -> None: ...

    def peer_refused(self, *_: Any) -> None: ...

    def peer_lost(self, worker: str) -> None: ...


def timers(loop: asyncio.AbstractEventLoop) -> int:
    """Returns how many timers the loop keeps, with those that were cancelled."""
    return len(cast(Any, loop)._scheduled)


async def test_many_values_of_a_link_set_one_timer() -> None:
    loop, sent = asyncio.get_running_loop(), list[int]()
    own, other = socket.socketpair()

    async def connect(channel: Channel[FromPeer]) -> None:
        await loop.create_connection(lambda: channel, sock=own)

    link = PeerLink(PeerHello(SERVING_VERSION, "w1", "key"), Receiver(), "w2", is_remote=False)
    ended, first = asyncio.Event(), asyncio.Event()
    link.start(connect, ended.set)
    value = PeerValue("r", 1, "stage", "source", PassedValue())
    before = timers(loop)

    def send(number: int) -> None:
        link.send(Delivery(value, b"x", lambda: None, lambda: sent.append(number)))

    link.send(Delivery(value, b"x", lambda: None, first.set))
    async with asyncio.timeout(10):
        await first.wait()
        for number in range(200):
            send(number)
            await asyncio.sleep(0)
    assert len(sent) == 200
    assert timers(loop) <= before + 2, "one of the link, one of this test's timeout"
    link.close()
    assert ended.is_set()
    other.close()


async def test_a_link_that_was_used_meanwhile_ends_an_idle_time_after_its_last_value(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(peer_link, "IDLE_S", 0.02)
    loop, used_s = asyncio.get_running_loop(), list[float]()
    own, other = socket.socketpair()

    async def connect(channel: Channel[FromPeer]) -> None:
        await loop.create_connection(lambda: channel, sock=own)

    link = PeerLink(PeerHello(SERVING_VERSION, "w1", "key"), Receiver(), "w2", is_remote=False)
    ended = asyncio.Event()
    link.start(connect, ended.set)
    value = PeerValue("r", 1, "stage", "source", PassedValue())

    def send() -> None:
        if not ended.is_set() and len(used_s) < 5:
            used_s.append(loop.time())  # before the link notes it
            link.send(Delivery(value, b"x", lambda: None, lambda: None))
            loop.call_later(0.01, send)

    send()
    async with asyncio.timeout(10):
        await ended.wait()
    assert loop.time() >= used_s[-1] + 0.02
    other.close()
