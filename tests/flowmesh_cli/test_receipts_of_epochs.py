"""The books over several epochs: control processes are killed, the next goes on with the accounts.

What every receipt says, read from the ledgers, and the fabric's part are the bill to the
nano-dollar, whatever moment a control process died at.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, end_workers, fmesh, started, until
from tests.flowmesh_store.published import published

pytestmark = pytest.mark.slow

COMMAND = ("run", "a.yaml", "b.yaml", "c.yaml", "policy.yaml")
KILLS = 3


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Writes workflows of three tenants whose steps run long enough to be killed."""
    for n, team in enumerate("abc"):
        flows.write(tmp_path, team, flow(n), f"team-{team}")
    flows.policy(tmp_path, "team-a", "team-b", "team-c")
    yield tmp_path
    end_workers(tmp_path)


def flow(tenant: int) -> dict[str, Any]:
    """Returns a workflow that waits in three rows; all tenants share the first two."""
    values = {"first": 0, "then": 0, "last": tenant}
    steps: list[dict[str, Any]] = []
    for name, value in values.items():
        step = {
            "name": name,
            "uses": "test.sleep",
            "matrix": {"n": [1, 2]},
            "with": {"seconds": 0.5, "value": value},
        }
        if steps:
            step["inputs"] = {"after": f"{steps[-1]['name']}[n=matrix.n].metrics"}
        steps.append(step)
    return {"steps": steps, "outputs": {"value": "last[n=1].metrics"}}


def moments(folder: Path) -> int:
    """Returns the number of written results, ledger segments and accounts."""
    state = folder / ".flowmesh"
    files = sum(len(list(state.glob(p))) for p in ("runs/*/ledger/*", "accounts/*"))
    return files + len(published(state))


def assert_the_books_agree(book: dict[str, Any]) -> None:
    fabric, receipts = book["fabric"], book["receipts"]
    paid = sum(receipt["paid_nanousd"] for receipt in receipts)
    assert paid == fabric["receipts_nanousd"]
    assert paid + fabric["fabric_nanousd"] == fabric["bill_nanousd"] > 0
    assert min(paid, fabric["fabric_nanousd"]) >= 0
    assert sum(receipt["saved_nanousd"] for receipt in receipts) == fabric["saved_nanousd"]
    assert sum(receipt["executed"] for receipt in receipts) == fabric["executed"]


def assert_fault_10_all_views_agree(folder: Path, ended: dict[str, Any]) -> None:
    """What `run` returned, `status`, `receipt` and their texts count the same."""
    uid = ended["uid"]
    status, receipt = (answer(verb, uid, cwd=folder) for verb in ("status", "receipt"))
    merged = sum(line["in_flight"] for line in receipt["lines"])
    counts = receipt["executed"], receipt["hits"] + merged
    assert counts == (ended["executed"], ended["hits"]) == (status["executed"], status["hits"])
    assert sum(counts) == ended["actions"]
    lines = {line["step"]: line for line in receipt["lines"]}
    for step in status["steps"]:
        assert step["executed"] == lines[step["path"]]["executed"], step["path"]
    shown = fmesh("status", uid, cwd=folder).stdout
    assert sum(map(int, re.findall(r"(\d+) ran", shown))) == receipt["executed"], shown


# tests/flowmesh_cli/test_killed.py asks the same of longer workflows.
@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 2, 5])
def test_receipts_and_the_fabric_account_add_up_to_the_bill_after_any_number_of_kills(
    folder: Path, seed: int
):
    rng = random.Random(seed)
    for _ in range(KILLS):
        count = moments(folder) + rng.randrange(0, 8)
        with started(*COMMAND, cwd=folder) as run:
            until(lambda n=count: moments(folder) >= n or run.process.poll() is not None)
            run.kill()
    ended = answer(*COMMAND, cwd=folder)
    assert [run["phase"] for run in ended["runs"]] == ["Succeeded"] * 3
    book = answer("receipt", "--all", cwd=folder)
    assert book["fabric"]["epoch"] > KILLS
    assert_the_books_agree(book)
    for run in ended["runs"]:
        assert_fault_10_all_views_agree(folder, run)
    more = answer("run", flows.write(folder, "d", flow(3), "team-d"), cwd=folder)
    assert more["runs"][0]["paid_nanousd"] > 0
    later = answer("receipt", "--all", cwd=folder)
    assert_the_books_agree(later)
    assert later["receipts"][:-1] == book["receipts"]
    assert later["fabric"]["bill_nanousd"] > book["fabric"]["bill_nanousd"]
