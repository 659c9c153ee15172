"""From a submitted document to results: real store, real gateway, real workers in processes."""

from typing import Any

import orjson
import pytest
from tests.flowmesh_control.fabric import Fabric, workflow

ROWS = [{"n": i, "word": f"w{i}"} for i in range(10)]
DOUBLE = {
    "inputs": {"numbers": {"rows": ROWS}},
    "steps": [
        {
            "name": "double",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.numbers"},
            "with": {"query": "select n, n * 2 as twice from rows order by n"},
        },
        {
            "name": "sum",
            "uses": "data.sql",
            "inputs": {"rows": "double.rows"},
            "with": {"query": "select sum(twice) as total from rows"},
        },
    ],
    "outputs": {"doubled": "double.rows", "total": "sum.rows"},
}


async def rows_of(fabric: Fabric, uid: str, output: str) -> list[dict[str, Any]]:
    data = await fabric.call("GET", f"/v1/runs/{uid}/outputs/{output}")
    return [orjson.loads(line) for line in data.splitlines()]


@pytest.mark.slow
async def test_a_workflow_runs_on_a_real_worker_and_gives_its_results(fabric: Fabric) -> None:
    fabric.worker("w1")
    uid = await fabric.submit(workflow("double", DOUBLE))
    status = await fabric.ended(uid)
    assert status.phase == "Succeeded", status
    assert await rows_of(fabric, uid, "doubled") == [{"n": i, "twice": 2 * i} for i in range(10)]
    assert await rows_of(fabric, uid, "total") == [{"total": 90}]
    assert status.executed == 2
    assert status.paid_nanousd > 0
