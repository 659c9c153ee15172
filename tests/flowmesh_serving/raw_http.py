"""HTTP by hand over a socket, for requests that no client library sends."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.flowmesh_serving.stack import MODEL, TOKEN, Stack, says

CHAT = "/v1/chat/completions"


@dataclass
class RawAnswer:
    """A response: its status and its body as JSON."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def error(self) -> dict[str, Any]:
        """OpenAI's error object."""
        found = self.body["error"]
        assert found.keys() == {"message", "type", "param", "code"}
        return dict(found)


@dataclass
class RawConnection:
    """A connection to a router."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> RawAnswer:
        """Reads a response that has a length."""
        async with asyncio.timeout(30):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return RawAnswer(int(first.split()[1]), headers, json.loads(body))

    async def until_closed(self) -> bytes:
        """Returns what came until the router closed the connection."""
        async with asyncio.timeout(30):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def reset(self) -> None:
        """Disconnects at once."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def connected(stack: Stack, **more: Any) -> AsyncIterator[RawConnection]:
    """Yields a connection to the router of a stack."""
    host, _, port = stack.router.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), **more)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(length: int | None, *, token: str = TOKEN, path: str = CHAT, more: str = "") -> bytes:
    """Returns the headers of a request; chunked where there is no length."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", size]
    return ("\r\n".join([*lines, *more.splitlines()]) + "\r\n\r\n").encode()


def chat(text: str, **more: Any) -> bytes:
    """Returns the body of a chat request."""
    return json.dumps({"model": MODEL, "messages": says(text), **more}).encode()


def request(body: bytes, **more: Any) -> bytes:
    """Returns a whole request."""
    return head(len(body), **more) + body
