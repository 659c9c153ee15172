"""``kill -9`` of each process of a fabric, at random moments, under 50 requests a second.

``make nightly JOBS="serving-kills serving-leader"`` kills each 20 times, and the leader for a
minute.
"""

import asyncio
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.flowmesh_serving.echo_fabric import ROUTERS, WORKERS, EchoFabric, Part, echo_fabric
from tests.flowmesh_serving.request_load import ArrayLoad, EchoLoad, RequestLoad

_SEEN_WITHIN_S = 0.1
"""Requests that are sent so shortly after a kill may still go where the process was."""
LEADER, ROUTER = "leader", "router"


def in_flight(load: RequestLoad, part: str, router: str) -> int:
    """Returns how many requests may be lost with a process that is killed now."""
    if part == LEADER or (part == Part.SANDBOX and isinstance(load, EchoLoad)):
        return 0
    late = int(load.rate * _SEEN_WITHIN_S)
    return late + sum(part != ROUTER or at == router for at in load.open.values())


async def killed(
    fabric: EchoFabric, loads: Sequence[RequestLoad], part: str, rng: random.Random
) -> int:
    """Kills one process of a kind, waits until it is there again, and returns what it cost."""
    sent = sum(load.ended for load in loads) + rng.randint(5, 30)
    while sum(load.ended for load in loads) < sent:  # noqa: ASYNC110 - a moment by what was served
        await asyncio.sleep(0.005)
    router, worker = rng.choice(ROUTERS), rng.choice(WORKERS)
    pids = [] if part in (LEADER, ROUTER) else await fabric.pids_of(worker, Part(part))
    before = [(len(load.failed), in_flight(load, part, router), set(load.open)) for load in loads]
    if part == LEADER:
        fabric.leader.kill()
        await fabric.leader.start(fabric.http)
    elif part == ROUTER:
        fabric.routers[router].kill()
        await fabric.routers[router].wait()
        await fabric.start_router(router)
    else:
        os.kill(rng.choice(pids), signal.SIGKILL)
        if part == Part.AGENT:
            fabric.fabric.workers[worker].wait()
            await fabric.start_worker(worker)
    await fabric.until_ready()
    for load, (_, _, numbers) in zip(loads, before, strict=True):
        while numbers & load.open.keys():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)
    costs = 0
    for load, (failed, most, _) in zip(loads, before, strict=True):
        cost = load.failed[failed:]
        assert len(cost) <= most, (part, most, len(cost), cost[:8])
        costs += len(cost)
    return costs


async def kill_each(root: Path, moments: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - to repeat it
    rng = random.Random(seed)
    parts = [ROUTER, LEADER, *Part] * moments
    rng.shuffle(parts)
    costs: Counter[str] = Counter()
    async with echo_fabric(root, with_arrays=True) as fabric:
        loads = (EchoLoad(fabric, 40.0, rng=rng), ArrayLoad(fabric, 10.0, rng=rng))
        async with loads[0].running(), loads[1].running():
            for part in parts:
                costs[part] += await killed(fabric, loads, part, rng)
        failed = [f for load in loads for f in load.failed]
        each = ", ".join(f"{part.rpartition('.')[2]} {costs[part]}" for part in sorted(set(parts)))
        print(  # noqa: T201 - the figures
            f"kills of each process: {moments}; {sum(x.ok for x in loads)} right, "
            f"{sum(len(x.wrong) for x in loads)} wrong, {sum(len(x.doubled) for x in loads)} "
            f"double, {sum(x.refused for x in loads)} refused, {len(failed)} failed: {each}"
        )
        print("\n".join(failed))  # noqa: T201 - the figures
        for load in loads:
            assert (load.wrong, load.doubled) == ([], [])
            # Half of the places are gone after a kill: what does not fit is refused.
            assert load.ok >= 0.8 * load.ended, (load.ok, load.refused, load.failed)


@pytest.mark.nightly
async def test_kill_9_at_twenty_moments_of_each_process(tmp_path: Path) -> None:
    await kill_each(tmp_path, 20)


async def without_leader(root: Path, seconds: float) -> None:
    async with echo_fabric(root, with_arrays=True) as fabric:
        loads = (EchoLoad(fabric, 40.0), ArrayLoad(fabric, 10.0))
        async with loads[0].running(), loads[1].running():
            fabric.leader.kill()
            wanted = seconds * loads[0].rate
            while loads[0].ended < wanted:  # noqa: ASYNC110 - by what was served
                await asyncio.sleep(0.02)
            epoch = await fabric.leader.start(fabric.http)
            assert epoch > 1
            served = loads[0].ended + 50
            while loads[0].ended < served:  # noqa: ASYNC110 - by what was served
                await asyncio.sleep(0.02)
            await fabric.until_ready()
        failed = [f for load in loads for f in load.failed]
        print(  # noqa: T201 - the figures
            f"without a leader for {seconds:.0f} s: {sum(x.ok for x in loads)} right, "
            f"{sum(len(x.wrong) for x in loads)} wrong, {len(failed)} failed, "
            f"{sum(x.refused for x in loads)} refused"
        )
        for load in loads:
            assert (load.failed, load.wrong, load.doubled, load.refused) == ([], [], [], 0)


@pytest.mark.nightly
async def test_without_a_control_plane_for_a_minute_no_request_fails(tmp_path: Path) -> None:
    await without_leader(tmp_path, 60.0)
