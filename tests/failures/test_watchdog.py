"""A worker is lost without a goodbye while the control plane is busy."""

import time
from typing import Any

import pytest
from tests.failures.observe import until
from tests.flowmesh_control.fabric import Fabric, machine_of, workflow
from tests.flowmesh_control.test_end_to_end import accounts

pytestmark = pytest.mark.slow


def many(count: int) -> dict[str, Any]:
    """Returns chains of three steps."""
    steps = []
    for n in range(count):
        inputs = {"before": f"s{n - 1}.metrics"} if n % 3 else {}
        params = {"value": n}
        steps.append({"name": f"s{n}", "uses": "test.noop", "inputs": inputs, "with": params})
    return workflow("many", {"steps": steps, "outputs": {}})


async def test_the_loss_of_a_loaded_worker_is_detected_within_the_watchdog_and_all_work_completes(
    fabric: Fabric,
) -> None:
    state = machine_of(fabric.control).state
    gateway = fabric.control.services.gateway
    watchdog_s = gateway._watchdog_s = 2.0
    first = fabric.worker("local-w1")
    fabric.worker("local-w2")

    async def both() -> bool:
        return len(state.workers) == 2

    await until(both)
    uid = await fabric.submit(many(1200))

    async def busy() -> bool:
        return state.book.executed > 100 and bool(state.workers["local-w1"].attempts)

    await until(busy)
    first.kill()
    killed_s = time.monotonic()

    async def lost() -> bool:
        return "local-w1" not in state.workers

    await until(lost)
    # The watchdog, a round of the watch (a quarter of it), and a turn of the loop.
    assert time.monotonic() - killed_s < watchdog_s * 1.25 + 1.0
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    assert status.executed == 1200
    totals = await accounts(fabric)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
