"""Routers, hubs and engine hosts are killed under requests."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import openai
import pytest
from tests.flowmesh_serving.stack import (
    ECHO,
    TOKEN,
    ask,
    echo_stack,
    replica_of,
    services,
    serving_stack,
    start_host,
    start_host_process,
    until,
    until_open,
)

from flowmesh_serving.service_file import write_services
from flowmesh_worker.ipc.frames import Start
from flowmesh_worker.serving.service_hub import ServiceHub

START = Start("test.echo", ECHO, {}, (), 64, 1, {}, "")


@pytest.mark.slow
async def test_kill_9_of_a_host_fails_its_streams_and_moves_what_has_not_begun(
    tmp_path: Path,
) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        doomed = await start_host_process(tmp_path / "one", START)
        await stack.hub.admit(replica_of(doomed, 1))
        await stack.until_ready()
        stream = await ask(client, "one wait", stream=True)
        await anext(stream)
        whole = asyncio.create_task(ask(client, "wait", extra_headers={"X-Request-Timeout": "9"}))
        await until_open(client, 2)
        other = await start_host(tmp_path / "two")
        await stack.hub.admit(replica_of(other, 2))
        await stack.until_ready(2)
        os.kill(doomed.pid, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="has ended"):
            async for _ in stream:
                pass
        await until_open(client, 1)  # the one that had sent nothing runs in the other host
        assert not whole.done()
        whole.cancel()
        await doomed.ended
        await other.close()


@pytest.mark.slow
async def test_kill_9_of_the_only_host_is_503_until_another_is_admitted(tmp_path: Path) -> None:
    async with serving_stack(tmp_path, replica_wait_s=0.2) as stack, stack.client as client:
        doomed = await start_host_process(tmp_path / "one", START)
        await stack.hub.admit(replica_of(doomed))
        await stack.until_ready()
        waiting = asyncio.create_task(ask(client, "wait"))
        await until_open(client, 1)
        os.kill(doomed.pid, signal.SIGKILL)
        with pytest.raises(openai.InternalServerError, match="has ended") as lost:
            await waiting
        assert lost.value.status_code == 503
        with pytest.raises(openai.InternalServerError, match="No replica"):
            await ask(client, "one")
        other = await start_host(tmp_path / "two")
        await stack.hub.admit(replica_of(other))
        await stack.until_ready()
        assert (await ask(client, "one")).choices[0].message.content == "one"
        await doomed.ended
        await other.close()


@pytest.mark.slow
async def test_a_router_that_is_gone_leaves_the_engine_and_its_successor_is_found(
    tmp_path: Path,
) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        second = tmp_path / "second"
        second.mkdir()
        write_services(second / "services.json", services())
        process = await asyncio.create_subprocess_exec(*router_command(second))
        stack.hub.use_routers((f"unix:{tmp_path / 'hubs'}", f"unix:{second / 'hubs'}"))
        async with await client_of(second) as other:
            await until_answered(other)
            waiting = asyncio.create_task(ask(other, "wait"))
            await until_open(client, 1)
            process.kill()
            with pytest.raises(openai.APIConnectionError):
                await waiting
        await until_open(client, 0)
        await process.wait()
        (second / "url").unlink()
        process = await asyncio.create_subprocess_exec(*router_command(second))
        async with await client_of(second) as other:
            await until_answered(other)
        process.terminate()
        assert await process.wait() == 0


async def test_a_hub_that_is_gone_takes_its_replicas_along_and_one_that_is_back_serves(
    tmp_path: Path,
) -> None:
    async with serving_stack(tmp_path, replica_wait_s=0.2) as stack, stack.client as client:
        host = await start_host(tmp_path / "host")
        await stack.hub.admit(replica_of(host))
        await stack.until_ready()
        waiting = asyncio.create_task(ask(client, "wait"))
        await until_open(client, 1)
        stack.hub.close()
        with pytest.raises(openai.InternalServerError, match="has ended"):
            await waiting
        hub = ServiceHub("worker-1", lambda _: None)
        hub.use_routers((f"unix:{tmp_path / 'hubs'}",))
        await hub.admit(replica_of(host))
        await stack.until_ready()
        await until_open(client, 0)
        hub.close()
        await host.close()


def router_command(folder: Path) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "flowmesh_serving.router",
        *("--hubs", str(folder / "hubs")),
        *("--services", str(folder / "services.json")),
        *("--ready-file", str(folder / "url")),
        *("--parent", str(os.getpid())),
    )


async def client_of(folder: Path) -> openai.AsyncOpenAI:
    """Returns a client of the router that writes its URL into this folder."""
    await until((folder / "url").exists)
    url = (folder / "url").read_text()
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)


async def until_answered(client: openai.AsyncOpenAI) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await ask(client, "one")
            except openai.APIStatusError:
                await asyncio.sleep(0.01)
            else:
                return
