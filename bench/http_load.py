"""Sends HTTP requests and measures them: the one load generator of all serving benchmarks.

A process of its own, so that its processor time is known and no contestant pays for it; it needs
no package but Python's own. Every connection is kept alive and sends its next request when it has
the answer to the one before (closed loop). Requests are bytes that are ready before the
measurement, and responses are only cut into their parts: a request costs it some 50 µs.

Each line of standard input is an order in JSON, answered in JSON. ``Load`` in ``serving_load.py``
writes the orders.
"""

import asyncio
import json
import os
import re
import sys
import time
from typing import Any

NUMBER = "@NUMBER@"
"""Is replaced in a body by the request's number, so that no two prompts are equal."""
_HEAD_END = b"\r\n\r\n"
_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
_OK = 200
_KEPT_BYTES = 1 << 10
_CONNECT_WITHIN_S = 10.0


class Run:
    """The requests of one order: which are left to send, and what became of those sent.

    Attributes:
        latencies_s: from a request's first byte to its answer's last.
        first_s: from a request's first byte to the first byte of its answer's body.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._head = (
            f"{order.get('method', 'POST')} {order['path']} HTTP/1.1\r\n"
            f"Host: {order['host']}:{order['port']}\r\nContent-Type: application/json\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in order["headers"].items())
        )
        self._body = order["body"]
        self._fixed = None if NUMBER in self._body else self._request(self._body)
        self._next = order.get("first_number", 0)
        self._left = order["requests"] if order.get("requests") else -1
        self._until_s = time.perf_counter() + order.get("seconds", 3600.0)
        self.status = order.get("status", _OK)
        self.latencies_s: list[float] = []
        self.first_s: list[float] = []
        self.tokens = self.events = 0
        self.failures: list[str] = []

    def _request(self, body: str) -> bytes:
        data = body.encode()
        return f"{self._head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    def next(self) -> bytes | None:
        """Returns the next request; None if no more are to be sent."""
        if not self._left or self.failures or time.perf_counter() >= self._until_s:
            return None
        self._left -= 1
        self._next += 1
        if self._fixed is not None:
            return self._fixed
        return self._request(self._body.replace(NUMBER, str(self._next)))


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._transport: Any = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reset()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = transport

    def begin(self) -> None:
        """Sends the next request, or ends where there is none."""
        request = self._run.next()
        if request is None:
            self._transport.close()
            return
        self._reset()
        self._sent_s = time.perf_counter()
        self._transport.write(request)

    def _reset(self) -> None:
        self._in_head, self._head = True, b""
        self._left = -1  # of the body, or of a chunk of it
        self._chunked = self._is_last = False
        self._rest = b""
        self._tail = b""
        self._events = 0
        self._first_s = 0.0
        self._sent_s = 0.0

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._in_head:
            self._head += data
            head, found, data = self._head.partition(_HEAD_END)
            if not found:
                return
            self._read_head(head)
        if not data:
            if self._left == 0 and not self._chunked:
                self._end()
            return
        if not self._first_s:
            self._first_s = time.perf_counter()
        if self._chunked:
            self._read_chunks(data)
        else:
            self._keep(data)
            self._left -= len(data)
        if self._is_last if self._chunked else self._left <= 0:
            self._end()

    def _read_head(self, head: bytes) -> None:
        self._in_head = False
        lines = head.lower().split(b"\r\n")
        if (status := int(lines[0].split()[1])) != self._run.status:
            self._run.failures.append(f"status {status}")
        fields = dict(line.split(b": ", 1) for line in lines[1:])
        self._chunked = fields.get(b"transfer-encoding") == b"chunked"
        self._left = 0 if self._chunked else int(fields[b"content-length"])

    def _read_chunks(self, data: bytes) -> None:
        """Cuts chunks: a size in hexadecimal, a line's end, the bytes, a line's end."""
        self._rest += data
        while True:
            size, found, rest = self._rest.partition(b"\r\n")
            if not found:
                return
            count = int(size, 16)
            if len(rest) < count + 2:
                return
            self._keep(rest[:count])
            self._rest = rest[count + 2 :]
            if not count:
                self._is_last = True
                return

    def _keep(self, data: bytes) -> None:
        self._events += data.count(b"data: ")
        self._tail = (self._tail + data)[-_KEPT_BYTES:]

    def _end(self) -> None:
        now, run = time.perf_counter(), self._run
        run.latencies_s.append(now - self._sent_s)
        run.first_s.append(self._first_s - self._sent_s)
        run.events += self._events
        if counts := _TOKENS.findall(self._tail):
            run.tokens += int(counts[-1])
        self.begin()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        if self._sent_s and not self._transport.is_closing():
            self._run.failures.append(f"the connection was lost: {error}")
        if not self.done.done():
            self.done.set_result(None)


async def load(order: dict[str, Any]) -> dict[str, Any]:
    """Sends the requests of an order; returns what they took."""
    run = Run(order)
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(order["concurrent"]):
        async with asyncio.timeout(_CONNECT_WITHIN_S):
            made = await loop.create_connection(
                lambda: Connection(run), order["host"], order["port"]
            )
        connections.append(made[1])
    began_s, began_cpu_s = time.perf_counter(), _own_s()
    for connection in connections:
        connection.begin()
    await asyncio.gather(*[connection.done for connection in connections])
    return {
        "seconds": time.perf_counter() - began_s,
        "own_cpu_s": _own_s() - began_cpu_s,
        "latencies_s": [round(value, 6) for value in run.latencies_s],
        "first_s": [round(value, 6) for value in run.first_s],
        "tokens": run.tokens,
        "events": run.events,
        "failures": run.failures[:3],
    }


def _own_s() -> float:
    times = os.times()
    return times.user + times.system


def main() -> None:
    """Obeys orders until standard input ends."""
    print(json.dumps({"pid": os.getpid()}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(asyncio.run(load(order))), flush=True)


if __name__ == "__main__":
    main()
