"""A row that crashes every engine host that works on it."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.failures.observe import step_of, until
from tests.flowmesh_control.fabric import Fabric, control_plane, workflow
from tests.flowmesh_control.test_end_to_end import accounts

from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.catalog.plugins import load_catalog

pytestmark = pytest.mark.slow

# Its host ends with all neighbours in it; alone, once the test says that all other chunks are
# published: a failing run stops what it alone still asks for.
ENGINE = """
import asyncio
import os
from pathlib import Path

from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_worker.engine_api import Result, Rows, Usage

ROWS = EngineContract(
    name="test.brittle",
    version=1,
    implementation=1,
    inputs=(Port("rows", PortKind.DATASET, doc="Rows."),),
    outputs=(Port("rows", PortKind.DATASET, doc="The same."),),
    row_wise="rows",
    row_output="rows",
    capacity=8,
    doc="Dies of a row.",
)

def contracts():
    return (ROWS,)

class Brittle:
    capacity = 8
    beside = 0

    async def load(self, components, settings):
        pass

    async def run(self, work, progress):
        rows = work.dataset("rows").rows()
        self.beside += 1
        if any(row["text"] == "poison" for row in rows):
            while self.beside == 1 and not OTHERS_DONE.exists():
                await asyncio.sleep(0.02)
            os.abort()
        await asyncio.sleep(0.1)
        self.beside -= 1
        return Result({"rows": Rows(rows)}, Usage(units=len(rows)))

    async def close(self):
        pass
"""
BRITTLE = EngineContract(
    name="test.brittle",
    version=1,
    implementation=1,
    inputs=(Port("rows", PortKind.DATASET, doc="Rows."),),
    outputs=(Port("rows", PortKind.DATASET, doc="The same."),),
    row_wise="rows",
    row_output="rows",
    capacity=8,
    doc="Dies of a row.",
)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the engine as a plugin for workers that start afterwards."""
    site = tmp_path / "site"
    about = site / "brittle-1.dist-info"
    about.mkdir(parents=True)
    gate = f"OTHERS_DONE = Path({str(tmp_path / 'others-done')!r})\n"
    (site / "brittle.py").write_text(ENGINE + gate)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: brittle\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[flowmesh.contracts]\nbrittle = brittle:contracts\n\n"
        "[flowmesh.engines]\ntest.brittle = brittle:Brittle\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")


@pytest.fixture
async def fabric(tmp_path: Path, plugin: None) -> AsyncIterator[Fabric]:
    """A control plane that knows the plugin's contract, without workers."""
    control = control_plane(tmp_path, replicas=False)
    control._catalog = Catalog([*load_catalog(), BRITTLE])
    await control.start()
    async with ClientSession() as http:
        fabric = Fabric(tmp_path, control, http)
        yield fabric
        await asyncio.to_thread(fabric.close)
    await control.stop()


def flow(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    step = {"name": "all", "uses": "test.brittle", "inputs": {"rows": "inputs.rows"}}
    spec = {"inputs": {"rows": {"rows": rows}}, "steps": [step], "outputs": {"rows": "all.rows"}}
    return workflow(name, spec)


async def test_a_poison_row_fails_only_its_own_run_and_neighbouring_actions_are_published(
    tmp_path: Path, fabric: Fabric
) -> None:
    rows = [{"text": f"row {n}"} for n in range(400)]
    # A third one: the poison row holds one alone, and what it took with it avoids another.
    for name in ("local-w1", "local-w2", "local-w3"):
        fabric.worker(name)
    bad = [*rows[:200], {"text": "poison"}, *rows[201:]]
    poisoned = await fabric.submit(flow("poisoned", bad), namespace="a")
    healthy = await fabric.submit(flow("healthy", rows[:50]), namespace="b")

    async def all_but_one() -> bool:
        step = await step_of(fabric, poisoned)
        return step.actions > 3 and step.done == step.actions - 1

    await until(all_but_one)
    (tmp_path / "others-done").touch()
    ended = await fabric.ended(poisoned)
    assert (ended.phase, ended.reason) == ("Failed", "poison"), ended
    # With suspects beside it, then alone: at least three times.
    found = re.search(r"ended its engine host or worker (\d+) times", ended.message)
    assert found is not None, ended.message
    assert int(found[1]) >= 3
    assert (await fabric.ended(healthy)).phase == "Succeeded"
    mended = await fabric.ended(await fabric.submit(flow("mended", rows), namespace="a"))
    assert mended.phase == "Succeeded", mended
    # Content-defined borders: only chunks about the poisoned row are other ones.
    step = mended.steps[0]
    assert step.executed <= 3
    assert step.hits >= step.actions - 3 > 0
    totals = await accounts(fabric)
    assert totals.bill_nanousd == totals.receipts_nanousd + totals.fabric_nanousd
