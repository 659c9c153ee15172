"""Sends requests as fast as a number of connections allow, at little cost of its own.

``bench/attacks.py`` runs it as a process of its own, which shares the processors with the control
plane that it floods. So it imports nothing of the fabric: that would take 1.6 s of a processor, in
which submissions wait that are measured. A connection sends its next request when it has the answer
to the last one, and is opened again when the control plane closes it.
"""

import argparse
import json
import selectors
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_OPEN_EVERY_S = 0.002
"""A control plane bounds the connections that have shown no token yet."""


@dataclass(slots=True)
class Flood:
    """Requests on many connections to one server.

    Attributes:
        answers: how many had each status.
        connects: how many connections were opened.
    """

    url: str
    path: str
    token: str
    connections: int
    per_s: float
    answers: Counter[str] = field(default_factory=Counter)
    connects: int = 0
    _idle: list[socket.socket] = field(default_factory=list)
    _open: int = 0
    _opened_s: float = 0.0
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self, seconds: float) -> None:
        """Sends requests for some seconds, at most ``per_s`` in each."""
        began, sent = time.monotonic(), 0
        while (passed_s := time.monotonic() - began) < seconds:
            for _ in range(int(passed_s * self.per_s) - sent):
                if not self._send():
                    break
                sent += 1
            for key, _ in self._selector.select(0.002):
                assert isinstance(key.fileobj, socket.socket)
                self._receive(key.fileobj)

    def _send(self) -> bool:
        if self._idle:
            connection = self._idle.pop()
        elif self._open < self.connections and time.monotonic() > self._opened_s + _OPEN_EVERY_S:
            connection = self._connect()
        else:
            return False
        server = urlsplit(self.url).netloc
        head = f"GET {self.path} HTTP/1.1\r\nHost: {server}\r\nAuthorization: Bearer {self.token}"
        connection.send(f"{head}\r\n\r\n".encode())
        return True

    def _connect(self) -> socket.socket:
        server = urlsplit(self.url)
        assert server.hostname is not None
        assert server.port is not None
        found = socket.create_connection((server.hostname, server.port))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(found, selectors.EVENT_READ)
        self._open += 1
        self._opened_s = time.monotonic()
        self.connects += 1
        return found

    def _receive(self, connection: socket.socket) -> None:
        try:
            answer = connection.recv(1 << 16)
        except ConnectionError:
            answer = b""
        if answer:
            self.answers[answer[9:12].decode()] += 1
        if answer and b"connection: close" not in answer.lower():
            self._idle.append(connection)
            return
        if connection in self._idle:
            self._idle.remove(connection)
        self._selector.unregister(connection)
        connection.close()
        self._open -= 1


def main() -> None:
    """Sends a flood; prints how many answers had each status."""
    given = argparse.ArgumentParser(description=main.__doc__)
    given.add_argument("url")
    given.add_argument("path")
    given.add_argument("token")
    given.add_argument("--connections", type=int, required=True)
    given.add_argument("--per-s", type=float, required=True)
    given.add_argument("--seconds", type=float, required=True)
    chosen = given.parse_args()
    flood = Flood(chosen.url, chosen.path, chosen.token, chosen.connections, chosen.per_s)
    flood.run(chosen.seconds)
    print(json.dumps(flood.answers))


if __name__ == "__main__":
    main()
