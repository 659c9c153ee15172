"""A link whose other end stands still is closed, and its calls go elsewhere or end."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.flowmesh_serving.hand_hub import hand_hub, load
from tests.flowmesh_serving.stack import (
    SERVICE,
    ask,
    replica_of,
    services,
    serving_stack,
    start_host,
    until,
)
from tests.flowmesh_serving.test_lost_processes import client_of, router_command, until_answered

from flowmesh_core.protocol.serving import Pong
from flowmesh_serving.links import hub_link
from flowmesh_serving.service_file import write_services
from flowmesh_worker.serving import router_link


@pytest.fixture(autouse=True)
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same times, ten times shorter."""
    monkeypatch.setattr(hub_link, "PING_EVERY_S", 0.05)
    monkeypatch.setattr(hub_link, "SILENT_S", 0.2)


def test_a_silent_hub_is_disconnected_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert (hub_link.PING_EVERY_S, hub_link.SILENT_S) == (0.5, 2.0)
    assert router_link.SILENT_S == 3.0


async def test_a_call_at_a_hub_that_stands_still_moves_to_another_replica(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        async with hand_hub(tmp_path, load(), worker="stalled") as hub:
            await stack.until_ready()
            waiting = asyncio.create_task(ask(client, "one"))
            await hub.call()  # and from now on it says nothing
            host = await start_host(tmp_path / "host")
            await stack.hub.admit(replica_of(host))
            assert (await waiting).choices[0].message.content == "one"
            await until(lambda: len(stack.router._calls.replicas._reported) == 1)
        await host.close()


async def test_a_hub_that_answers_pings_keeps_its_link(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, hand_hub(tmp_path, load()) as hub:
        await stack.until_ready()
        for _ in range(10):  # twice as long as a silent one has
            await hub.heard()
            hub.say(Pong())
        assert stack.router._calls.replicas.count(SERVICE) == 1


async def test_a_router_that_stood_still_itself_does_not_blame_the_hubs(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, stack.client as client:
        host = await start_host(tmp_path / "host")
        await stack.hub.admit(replica_of(host))
        await stack.until_ready()
        link = next(iter(stack.router._calls.replicas._reported))
        time.sleep(0.5)  # noqa: ASYNC251 - this process stands still, as one without processor time
        assert (await ask(client, "one")).choices[0].message.content == "one"
        assert next(iter(stack.router._calls.replicas._reported)) is link
        await host.close()


@pytest.mark.slow
async def test_a_router_that_stands_still_frees_its_places_in_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_link, "SILENT_S", 0.7)
    monkeypatch.setattr(router_link, "_CHECK_EVERY_S", 0.1)
    async with serving_stack(tmp_path) as stack, stack.client as client:
        host = await start_host(tmp_path / "host")
        await stack.hub.admit(replica_of(host))
        await stack.until_ready()
        second = tmp_path / "second"
        second.mkdir()
        write_services(second / "services.json", services())
        process = await asyncio.create_subprocess_exec(*router_command(second))
        stack.hub.use_routers((f"unix:{tmp_path / 'hubs'}", f"unix:{second / 'hubs'}"))
        async with await client_of(second) as other:
            await until_answered(other)
            waiting = asyncio.create_task(ask(other, "wait", timeout=60))
            await until(lambda: stack.hub._loads()[0].running == 1)
            os.kill(process.pid, signal.SIGSTOP)
            await until(lambda: stack.hub._loads()[0].running == 0)
            assert (await ask(client, "one")).open_calls == 0
            os.kill(process.pid, signal.SIGCONT)
            await until_answered(other)  # and it serves again
            waiting.cancel()  # it has moved, and the engine never answers it
        process.terminate()
        await process.wait()
        await host.close()
