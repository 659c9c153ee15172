"""Two control planes lead on one store, each with a worker, until the former one notices."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.failures.observe import ledger, status_of, until
from tests.flowmesh_control.fabric import Fabric, workflow
from tests.flowmesh_control.test_end_to_end import accounts, paid
from tests.flowmesh_control.test_restart import Elsewhere
from tests.flowmesh_store.published import published

from flowmesh_api.v1.why import AttemptLine

pytestmark = pytest.mark.slow
STEPS = 6


def chain() -> dict[str, Any]:
    steps = []
    for n in range(STEPS):
        inputs = {"before": f"s{n - 1}.metrics"} if n else {}
        params = {"seconds": 0.5, "value": n}
        steps.append({"name": f"s{n}", "uses": "test.sleep", "inputs": inputs, "with": params})
    return workflow("chain", {"steps": steps, "outputs": {"last": f"s{STEPS - 1}.metrics"}})


def records(root: Path) -> dict[str, bytes]:
    found = published(root / "store")
    return {key.split("/")[1]: record.data for key, record in found.items()}


async def test_the_older_leader_stops_and_results_of_both_leaders_remain_and_are_paid_once(
    tmp_path: Path,
) -> None:
    older, newer = Elsewhere(tmp_path), Elsewhere(tmp_path)
    async with ClientSession() as http:
        first = Fabric(tmp_path, older, http)  # type: ignore[arg-type]
        second = Fabric(tmp_path, newer, http)  # type: ignore[arg-type]
        try:
            assert await older.start(http) == 1
            first.worker("local-w1")
            uid = await first.submit(chain())

            async def begun() -> bool:
                return (await status_of(first, uid)).executed >= 2

            await until(begun)
            before = records(tmp_path)
            assert await newer.start(http) == 2
            second.worker("local-w2")

            async def left() -> bool:
                assert older._process is not None
                return older._process.poll() is not None

            await until(left)
            assert older._process is not None
            assert older._process.returncode != 0
            status = await second.ended(uid)
            assert status.phase == "Succeeded", status
            after = records(tmp_path)
            assert {name: after[name] for name in before} == before
            assert len(after) == STEPS
            # What the older one wrote into the ledger after the newer one took the run up counts
            # for nobody, so that no action is paid twice.
            recorded = [
                line.action_id
                for line in ledger(second, uid)
                if isinstance(line, AttemptLine) and line.outcome in ("published", "adopted")
            ]
            receipt = await paid(second, uid)
            totals = await accounts(second)
            assert totals.receipts_nanousd == receipt.paid_nanousd
            assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
            assert set(recorded) <= set(after)
        finally:
            first.close()
            second.close()
            for control in (older, newer):
                if control._process is not None:
                    control.kill()
