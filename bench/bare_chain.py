"""A chain of processes on the framing of our links, and nothing else: no token, limit or metric.

The first process reads HTTP requests with a few lines that know only ``http_load.py``'s, and passes
bodies on; the last sends them back. It is the least that a chain of Python processes costs, with
which ours is compared. ``python bare_chain.py COUNT`` prints its URL and serves until standard
input ends.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from flowmesh_core.protocol.serving import CallEnded, ServiceCall
from flowmesh_worker.ipc.channel import Channel

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Front(asyncio.Protocol):
    """A connection of a client, with one request at a time."""

    def __init__(self, ask: Callable[[bytes, "Front"], None]) -> None:
        self._ask = ask
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._buffer += data
        head, found, body = self._buffer.partition(_HEAD_END)
        if not found:
            return
        _, _, rest = head.lower().partition(_LENGTH)
        if len(body) < int(rest.partition(b"\r\n")[0]):
            return
        self._buffer = b""
        self._ask(json.dumps(json.loads(body)).encode(), self)

    def answer(self, body: bytes) -> None:
        """Sends the response."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        self._transport.write(head + str(len(body)).encode() + _HEAD_END + body)


async def serve_front(following: socket.socket) -> None:
    """Serves HTTP until standard input ends."""
    waiting: dict[str, Front] = {}
    number = 0

    def answer(message: CallEnded) -> None:
        waiting.pop(message.call_id).answer(message.body)

    following.setblocking(False)
    channel = await Channel[CallEnded].over(following, CallEnded, answer, lambda: None)

    def ask(body: bytes, front: Front) -> None:
        nonlocal number
        number += 1
        call_id = str(number)
        waiting[call_id] = front
        channel.send(ServiceCall(call_id, "r", "/", "m", body, False, 60_000, "t", 0))

    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Front(ask), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/", "processes": {"all": os.getpid()}}))
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


async def serve_link(before: socket.socket, following: socket.socket | None) -> None:
    """Passes calls on, or answers them where nothing follows, until the one before is gone."""
    ended = asyncio.Event()
    links: list[Channel[Any]] = []  # those that calls go to, and then the one that they come from

    def receive(call: ServiceCall) -> None:
        if following is None:
            links[0].send(CallEnded(call.call_id, "ok", 200, call.body))
        else:
            links[0].send(call)

    def answer(end: CallEnded) -> None:
        links[1].send(end)

    if following is not None:
        following.setblocking(False)
        links.append(await Channel[CallEnded].over(following, CallEnded, answer, ended.set))
    before.setblocking(False)
    links.append(await Channel[ServiceCall].over(before, ServiceCall, receive, ended.set))
    await ended.wait()


def start(count: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts the process that follows, and through it all others; returns it and its socket."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, __file__, str(count), str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    return process, ours


def main() -> None:
    """Runs one process of the chain and starts those that follow."""
    count = int(sys.argv[1]) - 1
    process, following = start(count) if count else (None, None)
    if len(sys.argv) > 2:
        asyncio.run(serve_link(socket.socket(fileno=int(sys.argv[2])), following))
    elif following is not None:
        asyncio.run(serve_front(following))
    if following is not None:
        following.close()
    if process is not None:
        process.wait()


if __name__ == "__main__":
    main()
