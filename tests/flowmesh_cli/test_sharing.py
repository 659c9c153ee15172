"""Three tenants' overlapping workflows: together, apart, and together without a policy.

Together they execute strictly less; however they run, every exact and seeded output is the same to
the byte, and what all paid and the fabric's part are the bill to the nano-dollar.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

pytestmark = pytest.mark.nightly

TEAMS = ("team-a", "team-b", "team-c")
WITHIN_S = 1000.0
CODE = "def main(rows):\n  return [{**row, 'twice': row['mapped'] * 2} for row in rows]\n"


def step(name: str, uses: str, inputs: dict[str, str], **params: Any) -> dict[str, Any]:
    return {"name": name, "uses": uses, "inputs": inputs, "with": params}


def data_flow(tenant: int) -> dict[str, Any]:
    """Returns a workflow: a head of all tenants, a step of two of them, and its own tail."""
    top = f"select * from rows order by all limit {10 if tenant < 2 else 20}"
    tail = f"select question, twice, {tenant} as tenant from rows order by all"
    return {
        "inputs": {"questions": {"dataset": "./questions.jsonl"}},
        "steps": [
            step("map", "test.map", {"rows": "inputs.questions"}),
            step("code", "code.python", {"rows": "map.rows"}, code=CODE),
            step("top", "data.sql", {"rows": "code.rows"}, query=top),
            step("tail", "data.sql", {"rows": "code.rows"}, query=tail),
        ],
        "outputs": {
            **{name: f"{name}.rows" for name in ("map", "code", "top", "tail")},
            "count": "map.metrics",
        },
    }


class Tenants:
    """Three workflows in a folder, run together or apart, each time on a fresh state."""

    def __init__(self, folder: Path, flow: Any) -> None:
        self.folder = folder
        self._files = [
            flows.write(folder, f"flow-{team}", flow(n), team) for n, team in enumerate(TEAMS)
        ]
        self._policy = flows.policy(folder, *TEAMS)

    def together(self, state: str, *options: str) -> dict[str, Any]:
        return self._run(state, *self._files, self._policy, *options)

    def apart(self) -> list[dict[str, Any]]:
        return [self._run(f"apart-{n}", file, self._policy) for n, file in enumerate(self._files)]

    def _run(self, state: str, *arguments: str | Path) -> dict[str, Any]:
        place = self.folder / state
        command = ("run", *arguments, "--state-dir", place)
        answered = answer(*command, cwd=self.folder, timeout_s=WITHIN_S)
        assert [run["phase"] for run in answered["runs"]] == ["Succeeded"] * len(answered["runs"])
        assert_it_adds_up(self.folder, place, answered)
        for run in answered["runs"]:
            files = place / "outputs" / run["namespace"]
            done = fmesh(
                "outputs", run["uid"], "--download", files, "--state-dir", place, cwd=self.folder
            )
            assert done.returncode == 0, done.stderr
        return answered

    def files(self, state: str) -> dict[str, bytes]:
        """Returns every downloaded output of a state folder, by tenant and name."""
        place = self.folder / state / "outputs"
        found = (p for p in sorted(place.rglob("*")) if p.is_file())
        return {str(p.relative_to(place)): p.read_bytes() for p in found}


def assert_it_adds_up(folder: Path, state: Path, answered: dict[str, Any]) -> None:
    """Checks that the runs' and the fabric's shares sum to the bill, during and after the run."""
    fabric = answered["fabric"]
    paid = sum(run["paid_nanousd"] for run in answered["runs"])
    assert paid == fabric["receipts_nanousd"]
    assert paid + fabric["fabric_nanousd"] == fabric["bill_nanousd"] > 0
    book = answer("receipt", "--all", "--state-dir", state, cwd=folder)
    assert sum(r["paid_nanousd"] for r in book["receipts"]) == paid
    assert paid + book["fabric"]["fabric_nanousd"] == book["fabric"]["bill_nanousd"]


def assert_sharing_saves_work_and_changes_nothing(tenants: Tenants, *, saved: int) -> None:
    apart = tenants.apart()
    executed_apart = sum(each["fabric"]["executed"] for each in apart)
    together = tenants.together("together")
    assert together["fabric"]["executed"] == executed_apart - saved
    assert sum(run["executed"] for run in together["runs"]) == executed_apart - saved
    assert sum(run["hits"] for run in together["runs"]) == saved
    alone = tenants.together("alone", "--no-policies")
    assert alone["fabric"]["executed"] == executed_apart
    assert sum(run["hits"] for run in alone["runs"]) == 0
    assert answer("receipt", "--all", "--state-dir", "alone", cwd=tenants.folder)["shared"] == []
    kept: dict[str, bytes] = {}
    for n in range(len(TEAMS)):
        kept |= tenants.files(f"apart-{n}")
    assert len(kept) == sum(len(run["outputs"]) for run in together["runs"])
    assert tenants.files("together") == kept
    assert tenants.files("alone") == kept
    digests = [each["runs"][0]["outputs"] for each in apart]
    for answered in (together, alone):
        for run, expected in zip(answered["runs"], digests, strict=True):
            got = {name: output["digest"] for name, output in run["outputs"].items()}
            assert got == {name: output["digest"] for name, output in expected.items()}


def test_three_tenants_on_data_engines_share_work_and_get_the_same_results_as_alone(tmp_path: Path):
    flows.questions(tmp_path, rows=30)
    # Map and code twice each, and the query that two have: 5 fewer.
    assert_sharing_saves_work_and_changes_nothing(Tenants(tmp_path, data_flow), saved=5)
