"""Attacker: T0, anyone who can reach the router's port, or a tenant T2 with a service token.
Action: opens 1,000 silent connections, sends heads and bodies byte by byte, and reads no answer.
Must not happen: the connections stay, memory grows with them, or another's request is not answered.
"""

import asyncio
import contextlib
import socket
from pathlib import Path

import openai
import pytest
from tests.call_counts import counted_calls
from tests.flowmesh_serving.raw_http import chat, connected, head, request
from tests.flowmesh_serving.stack import TOKEN, ask, echo_stack, until, until_open

HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: "


async def test_heads_that_never_end_are_closed_also_where_bytes_keep_coming(tmp_path: Path) -> None:
    async with (
        echo_stack(tmp_path, header_s=0.3) as stack,
        connected(stack) as silent,
        connected(stack) as dripping,
        connected(stack) as later,
        stack.client as client,
    ):
        later.send(request(chat("one")))
        assert (await later.answer()).status == 200
        later.send(HALF)  # the second request of a connection that is kept
        dripping.send(HALF)

        async def drip() -> None:
            while True:
                dripping.send(b"x")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(drip())
        for peer in (silent, dripping, later):
            assert await peer.until_closed() == b""
        task.cancel()
        assert (await ask(client, "two")).choices[0].message.content == "two"


async def test_a_body_that_does_not_arrive_is_408_and_frees_its_place(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, body_s=0.3) as stack, connected(stack) as peer:
        peer.send(head(1000) + b"{")
        await until(lambda: stack.router._endpoints._in_flight._by_tenant["team-a"] == 1)
        answer = await peer.answer()
        assert (answer.status, answer.error["code"]) == (408, "request_timeout")
        assert not stack.router._endpoints._in_flight._by_tenant
        async with connected(stack) as own:
            own.send(request(chat("one")))
            assert (await own.answer()).status == 200


async def test_a_flood_of_idle_connections_gives_way_to_new_ones(tmp_path: Path) -> None:
    async with (
        echo_stack(tmp_path, connections_max=40) as stack,
        contextlib.AsyncExitStack() as exits,
        stack.client as client,
    ):
        stream = await ask(client, "one wait", stream=True)
        await anext(stream)  # a connection with a request is not closed for others
        for n in range(200):
            peer = await exits.enter_async_context(connected(stack))
            if n % 2:
                peer.send(request(b"", token="wrong"))
        assert stack.router._connections.count <= 40
        async with stack.client as another:
            assert (await ask(another, "two")).choices[0].message.content == "two"
        assert not stream.response.is_closed
        await until_open(client, 1)  # the stream runs
        await stream.close()


@pytest.mark.slow
async def test_a_thousand_idle_connections_make_no_request_more_work(tmp_path: Path) -> None:
    async def work_of_requests(client: openai.AsyncOpenAI) -> int:
        with counted_calls() as count:  # of client, router, hub and engine
            for _ in range(20):
                await ask(client, "one")
        return count()

    async with (
        echo_stack(tmp_path) as stack,
        contextlib.AsyncExitStack() as exits,
        stack.client as client,
    ):
        await ask(client, "one")
        alone = await work_of_requests(client)
        for _ in range(1000):
            await exits.enter_async_context(connected(stack))
        assert stack.router._connections.count >= 1000
        assert await work_of_requests(client) < 1.2 * alone


async def test_a_client_that_reads_no_answer_is_disconnected(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, slow_client_s=0.2) as stack, stack.client as client:
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        small.setblocking(False)
        host, _, port = stack.router.url.removeprefix("http://").partition(":")
        await asyncio.get_running_loop().sock_connect(small, (host, int(port)))
        body = chat("word " * 300_000)  # an answer larger than what sockets hold
        async with stack.client as idle:
            await ask(idle, "one")
            before = stack.router._connections.count
            await asyncio.get_running_loop().sock_sendall(small, request(body))
            await until(lambda: stack.router._connections.count == before - 1)
        small.close()
        assert (await ask(client, "two")).choices[0].message.content == "two"


@pytest.mark.parametrize("when", ["before", "body", "stream", "after"])
async def test_a_client_that_vanishes_at_any_time_leaves_nothing(tmp_path: Path, when: str) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        async with connected(stack) as peer:
            if when == "before":
                peer.send(request(chat("wait")))
                await until_open(client, 1)
            elif when == "body":
                peer.send(head(1000, token=TOKEN) + b"{")
                await until(lambda: bool(stack.router._endpoints._in_flight._by_tenant))
            elif when == "stream":
                peer.send(request(chat("one wait", stream=True)))
                await peer.reader.readuntil(b"data: ")
            else:
                peer.send(request(chat("one")))
                await peer.answer()
            peer.reset()
        await until(lambda: stack.router._calls.in_flight == 0)
        await until_open(client, 0)
        await until(lambda: not stack.router._endpoints._in_flight._by_tenant)
        assert not stack.router._endpoints._in_flight._by_service
