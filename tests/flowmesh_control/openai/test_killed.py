"""Leader and engine are killed while a batch runs: no line is lost, none is answered twice."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI
from tests.flowmesh_control.fabric import Fabric
from tests.flowmesh_control.openai.batches import (
    CHAT,
    created,
    line,
    lines_of,
    reaches,
    texts_of,
)
from tests.flowmesh_control.openai.conftest import client_of
from tests.flowmesh_control.test_restart import Elsewhere

pytestmark = pytest.mark.nightly

LINES = 10_000
ACCEPTED_WITHIN_S = 10.0
_HOST = "flowmesh_worker.host"


@pytest.fixture
async def fabric(tmp_path: Path) -> AsyncIterator[Fabric]:
    control = Elsewhere(tmp_path, "tests.flowmesh_control.openai.serve")
    async with ClientSession() as http:
        await control.start(http)
        fabric = Fabric(tmp_path, control, http)  # type: ignore[arg-type]
        yield fabric
        control.kill()
        await asyncio.to_thread(fabric.close)


async def completes(client: AsyncOpenAI, name: str, count: int) -> None:
    """Waits until some requests of a batch have completed."""
    async with asyncio.timeout(120):
        while True:
            batch = await client.batches.retrieve(name)
            assert batch.request_counts is not None
            if batch.request_counts.completed >= count:
                assert batch.status == "in_progress"
                return
            await asyncio.sleep(0.1)


async def engine_of(worker: int) -> int:
    """Returns the engine host of a worker, once it has one."""
    async with asyncio.timeout(60):
        while True:
            children = psutil.Process(worker).children(recursive=True)
            seen = [c.cmdline() for c in children]
            hosts = [c for c, line in zip(children, seen, strict=True) if _HOST in line]
            if hosts:
                return max(hosts, key=lambda host: host.cpu_times().user).pid
            await asyncio.sleep(0.1)


async def test_leader_and_engine_are_killed_and_every_line_is_answered_once(
    fabric: Fabric,
) -> None:
    worker = fabric.worker("local-w")
    lines = [line(f"r{i}", max_tokens=1 + i % 3) for i in range(LINES)]
    async with client_of(fabric.control.url) as client:
        began = time.monotonic()
        batch = await created(client, lines)
        accepted_s = time.monotonic() - began
        assert accepted_s <= ACCEPTED_WITHIN_S, accepted_s
        await completes(client, batch.id, 500)
        os.kill(await engine_of(worker.pid), signal.SIGKILL)
        await completes(client, batch.id, 2000)
        fabric.control.kill()  # type: ignore[attr-defined]
        await fabric.control.start(fabric.http)  # type: ignore[call-arg, arg-type]
        done = await reaches(client, batch.id, "completed", within_s=300)
        assert done.request_counts is not None
        assert (done.request_counts.completed, done.request_counts.failed) == (LINES, 0)
        assert done.error_file_id is None
        output = await lines_of(client, done.output_file_id)
        assert texts_of(output) == {f"r{i}": f"r{i}" for i in range(LINES)}
        assert [given["custom_id"] for given in output] == [f"r{i}" for i in range(LINES)]
        again = await client.batches.create(
            input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
        )
        repeated = await reaches(client, again.id, "completed")
        run = await fabric.call("GET", f"/v1/runs/{again.id.replace('_', '-')}")
        assert (run.get("executed", 0), run.get("paid_nanousd", 0)) == (0, 0)
        assert texts_of(await lines_of(client, repeated.output_file_id)) == texts_of(output)
