"""Connections that a client keeps for its next request, as most clients do.

Each is read in order. So a reply that a router sends twice is taken for the answer to the next
request on the connection, or is left over at the end.
"""

import asyncio
import contextlib
import ssl
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

_WITHIN_S = 60.0
_LEFT_WITHIN_S = 0.1
"""With TLS no client can end its side alone: what is left over has come by then."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class KeptConnections:
    """Sends requests to routers.

    Attributes:
        trust: verifies routers at ``https://``.
        left_over: what came after the last answer of a connection.
    """

    trust: ssl.SSLContext | bool = True
    left_over: list[bytes] = field(default_factory=list)
    _idle: defaultdict[str, list[Streams]] = field(default_factory=lambda: defaultdict(list))

    async def post(
        self, url: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Returns the status and the body of a response.

        Raises:
            ConnectionRefusedError: nothing listens, so nothing was sent.
            OSError: the connection has ended, or there is no answer for a minute.
            EOFError: it has ended within an answer.
        """
        reader, writer = await self._connection(url)
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            async with asyncio.timeout(_WITHIN_S):
                found = await _response(reader)
        except BaseException:
            writer.close()
            raise
        self._idle[url].append((reader, writer))
        return found

    async def _connection(self, url: str) -> Streams:
        while self._idle[url]:
            reader, writer = self._idle[url].pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        scheme, _, address = url.partition("://")
        host, _, port = address.partition(":")
        trust = self.trust if scheme == "https" else None
        return await asyncio.open_connection(host, int(port), ssl=trust)

    async def close(self) -> None:
        """Closes all connections, and keeps what is left over on each."""
        for reader, writer in (one for idle in self._idle.values() for one in idle):
            with contextlib.suppress(OSError):
                if data := await _rest(reader, writer):
                    self.left_over.append(data)
            writer.close()
        self._idle.clear()


async def _rest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    if not writer.can_write_eof():
        async with asyncio.timeout(_LEFT_WITHIN_S):
            return await reader.read(1 << 16)
    writer.write_eof()
    async with asyncio.timeout(_WITHIN_S):
        return await reader.read()


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    first, *lines = head.strip().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    if fields.get("transfer-encoding") != "chunked":
        return int(first.split()[1]), await reader.readexactly(int(fields["content-length"]))
    body = b""
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        body += (await reader.readexactly(size + 2))[:size]
        if not size:
            return int(first.split()[1]), body
