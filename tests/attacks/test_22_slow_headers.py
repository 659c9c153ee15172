"""Attacker: T0, anyone who can reach the port; no token is needed.
Action: opens 900 connections that never finish their headers, and others that stop in a body.
Must not happen: the connections stay, or another's request is not answered meanwhile.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from tests.attacks.one_fabric import fabric_at

from flowmesh_control.api.connections import (
    ConnectionTimes,
    TimedRequestHandler,
    TimedRunner,
)
from flowmesh_control.api.responses import errors_as_json
from flowmesh_control.auth.unverified_connections import UnverifiedConnections
from flowmesh_operator.leadership.liveness import alive_at

QUICK = ConnectionTimes(header_s=0.3, body_pause_s=0.3, keep_alive_s=0.5)
HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
BODY = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def slowly(request: web.Request) -> web.StreamResponse:
    """An answer that takes longer than any of the times."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.sleep(4 * QUICK.header_s)
    await response.write(b"late")
    return response


async def slow_to_read(request: web.Request) -> web.Response:
    """A handler that does not read for longer than the client may pause."""
    await asyncio.sleep(4 * QUICK.body_pause_s)
    return web.Response(text=str(len(await request.read())))


async def worker(request: web.Request) -> web.WebSocketResponse:
    messages = web.WebSocketResponse()
    await messages.prepare(request)
    await asyncio.sleep(4 * QUICK.keep_alive_s)
    async for message in messages:
        await messages.send_str(message.data)
    return messages


@asynccontextmanager
async def server(times: ConnectionTimes = QUICK) -> AsyncIterator[tuple[TimedRunner, int]]:
    app = web.Application(middlewares=[errors_as_json], client_max_size=64 << 20)
    app.router.add_get("/healthz", echo)
    app.router.add_post("/echo", echo)
    app.router.add_get("/slowly", slowly)
    app.router.add_post("/slow-to-read", slow_to_read)
    app.router.add_get("/worker", worker)
    unverified = UnverifiedConnections(1024, 1024)
    runner = TimedRunner(app, times=times, unverified=unverified, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner, runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def opened(port: int, count: int, said: bytes) -> list[Streams]:
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in streams:
        writer.write(said)
    return streams


async def closed(streams: list[Streams]) -> None:
    """Returns when the server has closed every connection."""
    async with asyncio.timeout(60):
        for reader, writer in streams:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()


@pytest.mark.slow
async def test_900_incomplete_requests_are_closed_while_another_request_is_answered() -> None:
    async with server() as (runner, port), aiohttp.ClientSession() as http:
        streams = await opened(port, 900, HALF)
        async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
        await closed(streams)
        assert runner.server is not None
        assert len(runner.server.connections) <= 1


async def test_sending_headers_byte_by_byte_does_not_extend_the_timeout() -> None:
    async with server() as (_, port):
        ((reader, writer),) = await opened(port, 1, HALF)

        async def drip() -> None:
            while not reader.at_eof():
                writer.write(b"x")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        await closed([(reader, writer)])
        dripping.cancel()


async def test_an_incomplete_request_on_a_keep_alive_connection_is_closed_too() -> None:
    async with server() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in await reader.readline()
        writer.write(HALF)
        await closed([(reader, writer)])


async def test_a_body_that_stops_arriving_is_answered_with_408() -> None:
    async with server() as (_, port):
        ((reader, writer),) = await opened(port, 1, BODY)
        assert b"408" in await asyncio.wait_for(reader.readline(), 60)
        told = await asyncio.wait_for(reader.readuntil(b"}}"), 60)
        assert b"the client sent no more of the body for 0.3 s" in told
        writer.close()


@pytest.mark.slow
async def test_a_slow_body_that_keeps_arriving_is_accepted() -> None:
    times = ConnectionTimes(header_s=5.0, body_pause_s=2.0, keep_alive_s=5.0)
    async with server(times) as (_, port):
        ((reader, writer),) = await opened(port, 1, BODY)
        for n in range(997):
            writer.write(b"x")
            if n % 166 == 0:  # six times: longer in all than a pause may be
                await asyncio.sleep(0.5)
        assert b"200" in await asyncio.wait_for(reader.readline(), 60)
        writer.close()


@pytest.mark.slow
async def test_slow_handlers_and_open_websockets_are_not_timed_out() -> None:
    async with server() as (_, port), aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}"
        async with http.get(f"{url}/slowly") as answer:
            assert await answer.read() == b"late"
        async with http.post(f"{url}/slow-to-read", data=bytearray(1 << 19)) as answer:
            assert (answer.status, await answer.text()) == (200, str(1 << 19))
        async with http.ws_connect(f"{url}/worker") as messages:
            await messages.send_str("still here")
            message = await messages.receive(60)
            assert (message.type, message.data) == (WSMsgType.TEXT, "still here")


async def test_both_servers_use_the_connection_timeouts(tmp_path: Path) -> None:
    assert ConnectionTimes() == ConnectionTimes(10.0, 60.0, 75.0)
    async with fabric_at(tmp_path) as fabric:
        require_times(fabric.control._runner)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with alive_at(port, "127.0.0.1") as runner, aiohttp.ClientSession() as http:
        require_times(runner)
        async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
    async with alive_at(0) as nowhere:
        assert nowhere is None


def require_times(runner: web.AppRunner | None) -> None:
    assert runner is not None
    assert runner.server is not None
    connection = runner.server()
    assert isinstance(connection, TimedRequestHandler)
    assert connection._times == ConnectionTimes()
    assert connection.keepalive_timeout == 75.0
