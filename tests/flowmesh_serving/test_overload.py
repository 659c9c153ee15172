"""More requests than a service takes: bounds, deadlines, cancellation, and slow clients."""

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import msgspec
import openai
import pytest
from tests.flowmesh_serving.stack import (
    MODEL,
    SALTS,
    SERVICE,
    TOKEN,
    ask,
    echo_stack,
    replica_of,
    says,
    services,
    serving_stack,
    start_host,
    until_open,
)

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash


async def test_a_flood_beyond_running_and_queued_calls_is_refused_at_once(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, calls_max=2) as stack, stack.client as client:
        tasks = [asyncio.create_task(ask(client, "wait")) for _ in range(6)]  # 2 run, 4 wait
        await stack.until_load(queued=4)
        for _ in range(20):
            with pytest.raises(openai.RateLimitError, match="overloaded") as refused:
                await ask(client, "one")
            assert refused.value.response.headers["Retry-After"] == "1"
        assert not any(task.done() for task in tasks)  # none was waited for
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_open(client, 0)


async def test_a_namespace_with_too_many_requests_leaves_the_others_theirs(tmp_path: Path) -> None:
    other = ServiceToken(token_hash("b"), "team-b")
    listed = (ServiceEntry(SERVICE, MODEL, (*services()[0].tokens, other), in_flight_max=4),)
    salts = {**SALTS, "team-b": "salt-b"}
    async with (
        echo_stack(tmp_path, listed=listed, salts=salts) as stack,
        stack.client as client,
        stack.client_of("b") as client_b,
    ):
        tasks = [asyncio.create_task(ask(client, "wait")) for _ in range(2)]
        await stack.until_load(running=2)
        with pytest.raises(openai.RateLimitError, match="may have 2 requests in flight"):
            await ask(client, "one")
        answer = await ask(client_b, "one")
        assert answer.seen["salt"] == "salt-b"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until_open(client, 0)


async def test_after_its_host_ran_out_of_memory_a_replica_runs_half_as_many_calls(
    tmp_path: Path,
) -> None:
    async with serving_stack(tmp_path) as stack:
        hosts = [await start_host(tmp_path / f"host-{halvings}") for halvings in (0, 1, 9)]
        for host, halvings in zip(hosts, (0, 1, 9), strict=True):
            admitted = replica_of(host, halvings)
            await stack.hub.admit(msgspec.structs.replace(admitted, halvings=halvings))
        assert [load.calls_max for load in stack.hub._loads()] == [4, 2, 1]
        for host in hosts:
            await host.close()


async def test_a_request_past_its_timeout_is_504_and_leaves_the_engine(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        with pytest.raises(openai.InternalServerError, match="longer than its timeout") as late:
            await ask(client, "wait", extra_headers={"X-Request-Timeout": "0.05"})
        assert late.value.status_code == 504
        await until_open(client, 0)


async def test_a_waiting_call_begins_when_a_running_one_ends(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, calls_max=1) as stack, stack.client as client:
        first = asyncio.create_task(ask(client, "wait"))
        await stack.until_load(running=1)
        second = asyncio.create_task(ask(client, "two"))
        await stack.until_load(queued=1)
        first.cancel()
        assert (await second).choices[0].message.content == "two"


async def test_a_client_that_is_gone_leaves_the_engine(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        stream = await ask(client, "one wait", stream=True)
        await anext(stream)
        whole = asyncio.create_task(ask(client, "wait"))
        await until_open(client, 2)
        await stream.close()
        await until_open(client, 1)
        whole.cancel()
        await until_open(client, 0)


@pytest.mark.slow
async def test_a_slow_client_stops_its_own_stream_and_is_then_disconnected(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, slow_client_s=0.5) as stack, stack.client as client:
        body = {"model": MODEL, "messages": says("flood"), "stream": True}
        url = f"{stack.router.url}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers, read_bufsize=1024) as session,
            session.post(url, json=body) as slow,
        ):
            await until_open(client, 1)  # others go on
            assert (await ask(client, "one")).choices[0].message.content == "one"
            await until_open(client, 0)  # it has read nothing for long enough
            received = 0
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in slow.content.iter_any():
                    received += len(chunk)
        assert received < 16 << 20  # what sockets and the credit hold, not what an engine can make
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{stack.router.url}/metrics") as response,
        ):
            assert 'outcome="client-slow"' in await response.text()
