"""``kill -9`` of each process of a fabric, at random moments, under 50 requests a second.

``make nightly JOBS="serving-kills serving-leader"`` kills each 20 times (``serving-kills-short`` 5
times), and the leader for a minute.
"""

import asyncio
import random
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.flowmesh_serving.echo_fabric import ROUTERS, WORKERS, EchoFabric, Part, echo_fabric
from tests.flowmesh_serving.request_load import ArrayLoad, EchoLoad, RequestLoad
from tests.flowmesh_serving.stack import until

_SEEN_WITHIN_S = 0.25
"""Requests that are sent so shortly after a process has ended may still go where it was."""
LEADER, ROUTER = "leader", "router"


@dataclass
class Exposed:
    """The requests of a load that may be lost with one process: it may have had them.

    Attributes:
        in_flight: those that had not ended when it was killed.
        first: the number of the first that was sent after that.
        failed: those that had failed before.
    """

    load: RequestLoad
    in_flight: set[int]
    first: int
    failed: set[int]

    @classmethod
    def of(cls, load: RequestLoad, part: str, router: str) -> "Exposed":
        at = load.open.items()
        in_flight = {n for n, name in at if part != ROUTER or name == router}
        return cls(load, in_flight, load.sent + 1, set(load.failed))

    def lost(self, part: str, last: int) -> int:
        """Checks which requests have failed, and returns how many.

        Args:
            part: that was killed.
            last: the number of the last request that may have gone to it.
        """
        may_fail = self.in_flight | set(range(self.first, last + 1))
        if part == LEADER or (part == Part.SANDBOX and isinstance(self.load, EchoLoad)):
            may_fail = set()
        lost = self.load.failed.keys() - self.failed
        others = [self.load.failed[n] for n in lost - may_fail]
        assert not others, (part, self.first, last, sorted(self.in_flight), others[:8])
        return len(lost)


async def end(fabric: EchoFabric, part: str, router: str, worker: str, pid: int) -> None:
    """Kills a process, and waits until it has ended."""
    if part == LEADER:
        fabric.leader.kill()
    elif part == ROUTER:
        fabric.routers[router].kill()
        await fabric.routers[router].wait()
    else:
        process = psutil.Process(pid)
        process.kill()
        if part == Part.AGENT:
            fabric.fabric.workers[worker].wait()
        await until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    if part != LEADER:
        await asyncio.sleep(_SEEN_WITHIN_S)


async def killed(
    fabric: EchoFabric, loads: Sequence[RequestLoad], part: str, rng: random.Random
) -> int:
    """Kills one process of a kind, waits until it is there again, and returns what it cost."""
    sent = sum(load.ended for load in loads) + rng.randint(5, 30)
    while sum(load.ended for load in loads) < sent:  # noqa: ASYNC110 - a moment by what was served
        await asyncio.sleep(0.005)
    router, worker = rng.choice(ROUTERS), rng.choice(WORKERS)
    pids = [0] if part in (LEADER, ROUTER) else await fabric.pids_of(worker, Part(part))
    exposed = [Exposed.of(load, part, router) for load in loads]
    await end(fabric, part, router, worker, rng.choice(pids))
    last = [load.sent for load in loads]
    if part == LEADER:
        await fabric.leader.start(fabric.http)
    elif part == ROUTER:
        await fabric.start_router(router)
    elif part == Part.AGENT:
        await fabric.start_worker(worker)
    await fabric.until_ready()
    for one, number in zip(exposed, last, strict=True):
        while any(n <= number for n in one.load.open):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)
    return sum(one.lost(part, number) for one, number in zip(exposed, last, strict=True))


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
        failed = [f for load in loads for f in load.failed.values()]
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
@pytest.mark.timeout(3600)  # as long as its job
async def test_kill_9_at_twenty_moments_of_each_process(tmp_path: Path) -> None:
    await kill_each(tmp_path, 20)


@pytest.mark.nightly
async def test_kill_9_at_five_moments_of_each_process(tmp_path: Path) -> None:
    await kill_each(tmp_path, 5)


async def without_leader(root: Path, seconds: float) -> None:
    async with echo_fabric(root, with_arrays=True) as fabric:
        # A part of the capacity, so that a busy machine refuses none either.
        loads = (EchoLoad(fabric, 20.0), ArrayLoad(fabric, 5.0))
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
        failed = [f for load in loads for f in load.failed.values()]
        print(  # noqa: T201 - the figures
            f"without a leader for {seconds:.0f} s: {sum(x.ok for x in loads)} right, "
            f"{sum(len(x.wrong) for x in loads)} wrong, {len(failed)} failed, "
            f"{sum(x.refused for x in loads)} refused"
        )
        for load in loads:
            assert (load.failed, load.wrong, load.doubled, load.refused) == ({}, [], [], 0)


@pytest.mark.nightly
async def test_without_a_control_plane_for_a_minute_no_request_fails(tmp_path: Path) -> None:
    await without_leader(tmp_path, 60.0)
