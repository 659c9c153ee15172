"""The wall clock is changed by an hour while runs are active."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.failures.observe import done_units, ledger, status_of
from tests.flowmesh_control.fabric import Fabric, control_plane, machine_of, workflow
from tests.flowmesh_control.test_end_to_end import accounts

from flowmesh_api.v1.why import AttemptLine
from flowmesh_control.loop.clock import steady

HOUR_S = 3600.0


class Wall:
    """A wall clock that a test can set."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


def counting(seconds: float) -> dict[str, Any]:
    params = {"steps": 50, "stepSeconds": seconds / 50, "value": seconds}
    step = {"name": "count", "uses": "test.steps", "with": params}
    return workflow("counting", {"steps": [step], "outputs": {"result": "count.metrics"}})


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_steady_clock_starts_with_the_wall_and_does_not_follow_its_steps(step_s: float) -> None:
    wall, elapsed = [1_000_000.0], [50.0]
    clock = steady(lambda: wall[0], lambda: elapsed[0])
    assert clock() == 1_000_000.0
    wall[0] += step_s
    elapsed[0] += 2.0
    assert clock() == 1_000_002.0


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_a_step_of_the_control_planes_clock_loses_no_worker_and_no_money(
    tmp_path: Path, step_s: float
) -> None:
    wall = Wall()
    control = control_plane(tmp_path, clock=wall, replicas=False)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        fabric.worker("local-w1")
        uid = await fabric.submit(counting(3.0))
        await done_units(fabric, uid, 10)
        (worker,) = machine_of(control).state.workers.values()
        wall.ahead_s += step_s
        control.services.gateway.watch()  # in this very moment, before the worker is heard again
        status = await fabric.ended(uid, within_s=400)
        assert status.phase == "Succeeded", status
        assert list(machine_of(control).state.workers.values()) == [worker]
        (line,) = [line for line in ledger(fabric, uid) if isinstance(line, AttemptLine)]
        assert (line.outcome, line.units) == ("published", 50)
        totals = await accounts(fabric)
        assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
        await asyncio.to_thread(fabric.close)
    await control.stop()


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_a_control_plane_that_starts_after_a_clock_step_continues_and_bills_no_extra_hour(
    tmp_path: Path, step_s: float
) -> None:
    wall = Wall()
    first = control_plane(tmp_path, replicas=False)
    await first.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, first, http)
        uid = await fabric.submit(counting(0.1))
        await first.stop()
        wall.ahead_s = step_s
        fabric.control = second = control_plane(tmp_path, clock=wall, replicas=False)
        await second.start()
        fabric.worker("local-w1")
        status = await fabric.ended(uid, within_s=400)
        assert status.phase == "Succeeded", status
        assert (await status_of(fabric, uid)).executed == 1
        totals = await accounts(fabric)
        assert totals.bill_nanousd < 60 * 3_600_000_000 / 3600, "less than a minute of $3.60"
        assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
        await asyncio.to_thread(fabric.close)
    await second.stop()
