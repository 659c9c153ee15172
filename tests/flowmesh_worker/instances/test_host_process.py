"""The worker as a process: how it ends, and that nothing outlives it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from flowmesh_core.errors import FailureKind

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World


async def gone(pids: list[int]) -> None:
    def alive() -> list[int]:
        return [
            p
            for p in pids
            if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE
        ]

    await until(lambda: not alive())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not condition():  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.02)


def mapped(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def children(pid: int) -> list[int]:
    return [p.pid for p in psutil.Process(pid).children(recursive=True)]


async def test_sigterm_completes_running_attempts_returns_the_others_and_exits_0(
    world: "World",
) -> None:
    process = await world.process("--grace", "20")
    running = world.assignment("test.sleep", params={"seconds": 1.0, "value": 1})
    await world.gateway.assign(running)
    await world.gateway.phase(running.attempt_id, "running")
    waiting = world.assignment("test.noop", memory_mib=8192)
    await world.gateway.assign(waiting)
    await world.gateway.phase(waiting.attempt_id, "queued")
    hosts = children(process.pid)
    process.send_signal(signal.SIGTERM)
    handed_back = await world.gateway.end(waiting.attempt_id)
    assert handed_back.failure is not None
    assert handed_back.failure.kind == FailureKind.DRAINED
    assert (await world.gateway.end(running.attempt_id)).failure is None
    assert await process.wait() == 0
    assert world.gateway.syncs[-1].goodbye
    assert any(s.draining for s in world.gateway.syncs)
    await gone(hosts)
    assert list((world.root / "cache-w1" / "run").iterdir()) == []


async def test_attempts_that_run_beyond_the_grace_period_are_returned(world: "World") -> None:
    process = await world.process("--grace", "0.3")
    a = world.assignment("test.sleep", params={"seconds": 60})
    await world.gateway.assign(a)
    await world.gateway.phase(a.attempt_id, "running")
    process.send_signal(signal.SIGTERM)
    end = await world.gateway.end(a.attempt_id)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.DRAINED
    assert await process.wait() == 0


async def test_a_drain_requested_by_the_control_plane_ends_the_worker(world: "World") -> None:
    process = await world.process()
    await world.gateway.desire(drain=True)
    assert await process.wait() == 0


async def test_kill_9_of_the_worker_leaves_no_process_and_its_successor_sweeps(
    world: "World",
) -> None:
    process = await world.process()
    code = "def main():\n    while True: pass"
    params = {"code": code, "function": "main", "args": {}, "timeoutS": 60.0, "memoryMib": 64}
    work = [
        world.assignment("test.sleep", params={"seconds": 60}),
        world.assignment("test.fail", params={"kind": "hang", "message": ""}),
        world.assignment("code.python", params=params),
    ]
    await world.gateway.assign(*work)
    for a in work:
        await world.gateway.phase(a.attempt_id, "running")
    await until(lambda: len(children(process.pid)) >= 4)
    hosts = children(process.pid)
    left = list((world.root / "cache-w1" / "run").iterdir())
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await gone(hosts)
    assert left[0].exists()
    world.gateway.hellos.clear()
    await world.process()
    assert not left[0].exists()


async def test_a_refused_worker_exits_with_3_and_prints_the_reason(world: "World") -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flowmesh_worker", "--gateway", world.gateway.url),
        *("--store", str(world.root / "no" / "file" / "x"), "--cache-dir", str(world.root / "c")),
        *("--store", "ftp://nowhere", "--cpu-only"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 3
    assert b"ftp://nowhere" in said


async def test_no_host_of_a_data_engine_imports_torch(world: "World") -> None:
    agent = await world.worker()
    end = await world.gateway.do(world.assignment("data.sql", params={"query": "select 1 as a"}))
    assert end.failure is None
    (lane,) = agent.hosts
    assert "torch" not in mapped(lane.process.pid)
