"""Two servers of this machine: one that an administrator opened, and one that no call may reach."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.egress.addresses import AddressPolicy
from flowmesh_worker.engines.http.call import Call, CallError
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.imports.download import Downloader

OPEN, CLOSED = "127.0.0.1", "127.0.0.2"


@dataclass
class Servers:
    """Both listen on one port; ``heads`` has the requests that each got, by its address."""

    port: int = 0
    heads: dict[str, list[bytes]] = field(default_factory=lambda: {OPEN: [], CLOSED: []})
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = writer.get_extra_info("sockname")[0]
        self.heads[at].append(await reader.readuntil(b"\r\n\r\n"))
        first = at == OPEN and len(self.heads[OPEN]) == 1
        writer.write(self.answer if first else Servers.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def two_servers() -> AsyncIterator[Servers]:
    servers = Servers()
    first = await asyncio.start_server(servers.met, OPEN, 0)
    servers.port = first.sockets[0].getsockname()[1]
    second = await asyncio.start_server(servers.met, CLOSED, servers.port)
    try:
        yield servers
    finally:
        for server in (first, second):
            server.close()
            await server.wait_closed()


def redirect(to: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


async def imported(rule: AddressPolicy, url: str) -> FailureKind | str:
    """Downloads a URL; returns its text, or the kind of the refusal."""
    try:
        return (await Downloader(rule, 1000).fetch(url)).content.decode()
    except AttemptError as error:
        return FailureKind(error.failure.kind)


async def called(rule: AddressPolicy, url: str, **more: Any) -> FailureKind | str:
    """Calls a URL; returns its text, or the kind of the refusal."""
    client = HttpClient(rule)
    try:
        return (await client.call(Call("GET", url, {}, retries=0, **more))).text
    except CallError as error:
        return FailureKind(error.kind)
    finally:
        await client.close()


CLIENTS = (imported, called)
