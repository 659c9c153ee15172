"""A worker that is suspended and continues after another worker has done its work."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.failures.observe import done_units, ledger, until
from tests.flowmesh_control.fabric import Fabric, control_plane, machine_of, workflow
from tests.flowmesh_control.test_end_to_end import accounts
from tests.flowmesh_store.published import published

from flowmesh_api.v1.why import AttemptLine

pytestmark = pytest.mark.slow


def counting(value: str = "late", steps: int = 60) -> dict[str, Any]:
    params = {"steps": steps, "stepSeconds": 0.02, "value": value}
    step = {"name": "count", "uses": "test.steps", "with": params}
    return workflow("late", {"steps": [step], "outputs": {"result": "count.metrics"}})


@pytest.fixture
async def eager(tmp_path: Path) -> AsyncIterator[Fabric]:
    """A control plane with early replica attempts and a long watchdog."""
    control = control_plane(tmp_path, watchdog_s=120.0, replica_after_s=1.0, replica_factor=1.0)
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await control.stop()


async def test_a_straggler_that_wakes_after_its_replica_has_published_overwrites_nothing(
    eager: Fabric,
) -> None:
    fabric = eager
    state = machine_of(fabric.control).state
    slow = fabric.worker("local-w1")
    for value in "abc":  # how long they take, so that another can be late
        await fabric.ended(await fabric.submit(counting(value, steps=1)))
    before = published(fabric.root / "store")
    uid = await fabric.submit(counting())
    await done_units(fabric, uid, 5)
    # The agent alone: its host goes on, so that it wakes to a result which it has to report.
    slow.send_signal(signal.SIGSTOP)
    try:
        fabric.worker("local-w2")
        status = await fabric.ended(uid, within_s=400)
        assert status.phase == "Succeeded", status
        after = published(fabric.root / "store")
        assert len(after) == len(before) + 1
        assert "local-w1" in state.workers
        assert state.workers["local-w1"].attempts
    finally:
        slow.send_signal(signal.SIGCONT)

    async def awake() -> bool:
        return not state.workers["local-w1"].attempts

    await until(awake)
    assert published(fabric.root / "store") == after  # their etags too: nothing was written
    lines = [line for line in ledger(fabric, uid) if isinstance(line, AttemptLine)]
    assert [(line.worker, line.outcome) for line in lines] == [("local-w2", "published")]
    totals = await accounts(fabric)
    assert totals.unsettled_nanousd == 0
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
