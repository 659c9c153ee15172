"""``kill -9`` of each process of a fabric, at random moments, under 50 requests a second.

In CI each kind is killed twice; ``make nightly`` kills each 20 times.
"""

import asyncio
import os
import random
import secrets
import signal
from pathlib import Path

import pytest
from tests.flowmesh_serving.echo_fabric import ROUTERS, WORKERS, EchoFabric, EchoLoad, echo_fabric

_SEEN_WITHIN_S = 0.1
"""Requests that are sent so shortly after a kill may still go where the process was."""


async def killed(fabric: EchoFabric, load: EchoLoad, part: str, rng: random.Random) -> None:
    """Kills one process of a kind, checks what it cost, and waits until it is there again."""
    sent = load.ended + rng.randint(5, 30)
    while load.ended < sent:  # noqa: ASYNC110 - a random moment, by what was served
        await asyncio.sleep(0.005)
    failed, in_flight = len(load.failed), len(load.open)
    if part == "leader":
        fabric.leader.kill()
        await fabric.leader.start(fabric.http)
        assert len(load.failed) == failed, load.failed[failed:]
        return
    if part == "router":
        name = rng.choice(ROUTERS)
        in_flight = sum(at == name for at in load.open.values())
        fabric.routers[name].kill()
        await fabric.routers[name].wait()
        await fabric.start_router(name)
    else:
        worker = rng.choice(WORKERS)
        os.kill(fabric.pid_of(worker, part), signal.SIGKILL)
        if part == "agent":
            fabric.fabric.workers[worker].wait()
            await fabric.start_worker(worker)
    await fabric.until_ready()
    late = int(load.rate * _SEEN_WITHIN_S)
    cost = load.failed[failed:]
    assert len(cost) <= in_flight + late, (part, in_flight, cost)


async def kill_each(root: Path, moments: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - to repeat it
    rng = random.Random(seed)
    parts = ["router", "hub", "host", "agent", "leader"] * moments
    rng.shuffle(parts)
    async with echo_fabric(root) as fabric:
        load = EchoLoad(fabric, rng=rng)
        async with load.running():
            for part in parts:
                await killed(fabric, load, part, rng)
        assert load.wrong == []
        # Half of the places are gone after a kill: what does not fit is refused, and does not fail.
        assert load.ok >= 0.8 * load.ended, (load.ok, load.refused, load.failed)
        print(f"{load.ok} ok, {load.refused} refused, {len(load.failed)} failed: {load.failed}")  # noqa: T201


@pytest.mark.nightly
async def test_kill_9_at_twenty_moments_of_each_process(tmp_path: Path) -> None:
    await kill_each(tmp_path, 20)


async def without_leader(root: Path, seconds: float) -> None:
    async with echo_fabric(root) as fabric:
        load = EchoLoad(fabric)
        async with load.running():
            fabric.leader.kill()
            wanted = seconds * load.rate
            while load.ended < wanted:  # noqa: ASYNC110 - by what was served
                await asyncio.sleep(0.02)
            assert (load.failed, load.wrong, load.refused) == ([], [], 0)
            epoch = await fabric.leader.start(fabric.http)
            assert epoch > 1
            served = load.ended + 50
            while load.ended < served:  # noqa: ASYNC110 - by what was served
                await asyncio.sleep(0.02)
            await fabric.until_ready()
        assert (load.failed, load.wrong, load.refused) == ([], [], 0)


@pytest.mark.nightly
async def test_without_a_control_plane_for_a_minute_no_request_fails(tmp_path: Path) -> None:
    await without_leader(tmp_path, 60.0)
