"""A step that requests too little memory, with a small worker and a large one."""

from typing import Any

import pytest
from tests.failures.observe import ledger, status_of, until
from tests.flowmesh_control.fabric import Fabric, machine_of, workflow

from flowmesh_api.v1.why import AttemptLine

pytestmark = pytest.mark.slow


def hungry(number: int) -> dict[str, Any]:
    """Needs about 800 MiB for a second or two; the contract states 512."""
    query = (
        "select len(list(range::varchar || repeat('x', 100))) as n, "
        f"{number} as number from range(7000000)"
    )
    step = {"name": "hungry", "uses": "data.sql", "with": {"query": query}}
    spec = {"optimize": "cost", "steps": [step], "outputs": {"rows": "hungry.rows"}}
    return workflow("hungry", spec)


async def last_line(fabric: Fabric, uid: str) -> AttemptLine:
    async def line() -> AttemptLine | None:
        lines = [ln for ln in ledger(fabric, uid) if isinstance(ln, AttemptLine)]
        return next((ln for ln in lines if ln.outcome == "published"), None)

    found: AttemptLine = await until(line)
    return found


async def test_an_action_out_of_memory_moves_to_a_larger_worker_and_the_next_like_it_starts_there(
    fabric: Fabric,
) -> None:
    fabric.worker("local-small", "--memory-mib", "600", "--price-usd-per-hour", "0.1")
    fabric.worker("local-large", "--memory-mib", "4096", "--price-usd-per-hour", "10")
    state = machine_of(fabric.control).state

    async def both() -> bool:
        return len(state.workers) == 2

    await until(both)
    first = await fabric.submit(hungry(1))
    status = await fabric.ended(first)
    assert status.phase == "Succeeded", status
    assert status.steps[0].attempts > 0, "it failed on the small one first"
    assert (await last_line(fabric, first)).worker == "local-large"
    second = await fabric.submit(hungry(2))
    status = await fabric.ended(second)
    assert status.phase == "Succeeded", status
    assert (await status_of(fabric, second)).steps[0].attempts == 0, "no attempt of it failed"
    assert (await last_line(fabric, second)).worker == "local-large"
