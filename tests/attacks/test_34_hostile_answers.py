"""Attacker: T6, a server that a workflow calls or imports from.

Action: answers with compressed bombs, byte by byte, without end, or with 50,000 headers.
Must not happen: memory grows beyond the answer's limit, or a call outlives its time.
"""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.egress.addresses import AddressPolicy
from flowmesh_worker.engines.http.call import Call, CallError
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.imports import download
from flowmesh_worker.engines.imports.download import Downloader

OPENED = AddressPolicy([ip_network("127.0.0.1/32")])
MAX_BYTES = 1 << 20
GROWTH_BYTES_MAX = 32 << 20
Write = Callable[[asyncio.StreamWriter], Awaitable[None]]
ZEROS = bytes(64 << 20)
OK = b"HTTP/1.1 200 OK\r\n"


def sent(head: bytes, body: bytes) -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    return write


def endless(head: bytes, piece: bytes) -> Write:
    """Writes a piece again and again until the client has gone."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + head)
        while True:
            writer.write(piece)
            await writer.drain()

    return write


def drip(head: bytes) -> Write:
    """Writes a byte each 50 ms."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + head)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    return write


LARGE: dict[str, Write] = {
    "gzip": sent(b"Content-Encoding: gzip\r\n", gzip.compress(ZEROS)),
    "deflate": sent(b"Content-Encoding: deflate\r\n", zlib.compress(ZEROS)),
    "many pieces of gzip": sent(b"Content-Encoding: gzip\r\n", gzip.compress(ZEROS[: 8 << 20]) * 8),
    "without end": endless(b"\r\n", bytes(1 << 16)),
    "chunks without end": endless(b"Transfer-Encoding: chunked\r\n\r\n",
                                  b"10000\r\n" + bytes(1 << 16) + b"\r\n"),
    "a length that is a lie": endless(b"Content-Length: 99999999999\r\n\r\n", bytes(1 << 16)),
    "50,000 headers": sent(b"".join(b"X-%d: y\r\n" % n for n in range(50_000)), b"ok"),
    "a header without end": endless(b"X-Long: ", b"y" * 1024),
    "headers without end": endless(b"", b"X-More: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 100),
}  # fmt: skip
SLOW: dict[str, Write] = {
    "a drip of content": drip(b"Content-Length: 1000000\r\n\r\n"),
    "a drip of headers": drip(b"X-Slow: "),
    "a drip of an extension of a chunk": drip(b"Transfer-Encoding: chunked\r\n\r\n1;"),
}


@asynccontextmanager
async def server(write: Write) -> AsyncIterator[str]:
    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await write(writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    found = await asyncio.start_server(met, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{found.sockets[0].getsockname()[1]}/"
    finally:
        found.close()


async def called(url: str, timeout_s: float) -> str:
    client = HttpClient(OPENED)
    call = Call("GET", url, {}, timeout_s=timeout_s, max_bytes=MAX_BYTES, retries=0)
    try:
        return (await client.call(call)).text
    finally:
        await client.close()


async def imported(url: str, timeout_s: float) -> str:
    del timeout_s
    return (await Downloader(OPENED, MAX_BYTES).fetch(url)).content.decode()


@pytest.mark.parametrize("client", [called, imported], ids=["call", "import"])
@pytest.mark.parametrize("name", LARGE)
async def test_a_large_answer_costs_no_more_than_its_limit(
    name: str, client: Callable[[str, float], Awaitable[str]]
) -> None:
    async with server(LARGE[name]) as url:
        tracemalloc.start()
        try:
            with pytest.raises((CallError, AttemptError)):
                await asyncio.wait_for(client(url, 20.0), 30)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= GROWTH_BYTES_MAX, (name, peak)


@pytest.mark.parametrize("name", SLOW)
async def test_a_slow_answer_ends_with_the_time_of_its_call(name: str) -> None:
    async with server(SLOW[name]) as url:
        async with asyncio.timeout(60):
            with pytest.raises(CallError, match="did not answer within"):
                await called(url, 0.3)


async def test_a_silent_answer_of_an_import_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 10\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(30)

    monkeypatch.setattr(download, "_SILENCE_S", 0.2)
    async with server(silent) as url:
        with pytest.raises(AttemptError, match="did not answer"):
            await asyncio.wait_for(imported(url, 0), 15)


@pytest.mark.parametrize("client", [called, imported], ids=["call", "import"])
async def test_an_honest_compressed_answer_is_read(
    client: Callable[[str, float], Awaitable[str]],
) -> None:
    text = "honest " * 10_000
    write = sent(b"Content-Encoding: gzip\r\n", gzip.compress(text.encode()))
    async with server(write) as url:
        assert await client(url, 20.0) == text
