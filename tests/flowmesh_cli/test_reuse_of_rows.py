"""What a change of a data set of 2,000 rows runs again, counted on the fabric itself.

The step under test works row by row, so it is one action a chunk; the attempts that published tell
how many rows they worked on.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer

pytestmark = pytest.mark.slow

Row = dict[str, Any]
ROWS = 2_000


def distinct(count: int, seed: int) -> list[Row]:
    rng = random.Random(seed)
    return [
        {"id": f"{seed}-{n}", "question": f"{rng.random()}?", "target": rng.random()}
        for n in range(count)
    ]


def flow(folder: Path, name: str, rows: list[Row], namespace: str = "team-a") -> Path:
    """Maps the rows of a file; returns the workflow."""
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    spec = {
        "inputs": {"rows": {"dataset": f"./{name}.jsonl"}},
        "steps": [
            {
                "name": "map",
                "uses": "test.map",
                "inputs": {"rows": "inputs.rows"},
                "with": {"value": 7},
            }
        ],
        "outputs": {"rows": "map.rows", "count": "map.metrics"},
    }
    return flows.write(folder, name, spec, namespace)


def run(folder: Path, *files: Path) -> dict[str, Any]:
    """Runs a workflow to its end and returns its status."""
    return answer("run", *files, cwd=folder)["runs"][0]


def rows_run(folder: Path, status: dict[str, Any]) -> int:
    """Returns the number of rows that a run's attempts processed, from its receipt."""
    (line,) = answer("receipt", status["uid"], cwd=folder)["lines"]
    return line.get("units", 0)


def outputs(status: dict[str, Any]) -> dict[str, str]:
    return {name: output["digest"] for name, output in status["outputs"].items()}


@pytest.fixture(scope="module")
def before() -> list[Row]:
    return distinct(ROWS, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, before: list[Row]) -> Path:
    """Returns a folder in which team-a has mapped 2,000 rows."""
    place = tmp_path_factory.mktemp("mapped")
    status = run(place, flow(place, "first", before))
    assert rows_run(place, status) == ROWS
    assert status["executed"] > ROWS / 128
    assert status["outputs"]["count"]["value"] == {"count": ROWS}
    return place


def from_nothing(folder: Path, *files: Path) -> list[dict[str, str]]:
    """Returns the outputs of workflows, each of a separate tenant, on an empty store."""
    tenants = [each for n in range(len(files)) for each in ("-n", f"team-{n}")]
    command = ("run", *files, "--no-policies", *tenants, "--state-dir", folder / "nothing")
    done = answer(*command, cwd=folder)["runs"]
    assert [each["hits"] for each in done] == [0] * len(files)
    return [outputs(each) for each in done]


POSITIONS = (0, 700, 2_000)


@pytest.fixture(scope="module")
def changed(folder: Path, before: list[Row]) -> dict[str, Row]:
    """Runs in one command: a row inserted at each place, twenty in one region, and no change."""
    contents = {"again": before, "twenty": list(before)}
    rng = random.Random(5)
    for row in distinct(20, 99):
        contents["twenty"].insert(900 + rng.randrange(100), row)
    for position in POSITIONS:
        new = {"id": f"new-{position}", "question": "1 + 1?", "target": 2.0}
        contents[f"one-{position}"] = [*before[:position], new, *before[position:]]
    files = [flow(folder, name, rows) for name, rows in contents.items()]
    runs = answer("run", *files, cwd=folder)["runs"]
    fresh = from_nothing(folder, *files)
    return {n: r | {"fresh": f} for n, r, f in zip(contents, runs, fresh, strict=True)}


@pytest.mark.parametrize("position", POSITIONS)
def test_one_insert_runs_at_most_three_chunks_and_gives_the_rows_of_a_run_from_nothing(
    changed: dict[str, Row], position: int
):
    status = changed[f"one-{position}"]
    assert 1 <= status["executed"] <= 3
    assert status["hits"] > ROWS / 128
    assert outputs(status) == status["fresh"]


def test_twenty_inserts_in_one_region_run_at_most_fifteen_percent_of_the_rows(
    folder: Path, changed: dict[str, Row]
):
    status = changed["twenty"]
    assert 20 <= rows_run(folder, status) <= 0.15 * (ROWS + 20)
    assert outputs(status) == status["fresh"]


def test_the_same_rows_submitted_again_cause_one_look_up_and_no_attempt(changed: dict[str, Row]):
    status = changed["again"]
    assert (status["executed"], status["hits"]) == (0, 1)


def test_rows_inside_a_larger_data_set_of_another_tenant_are_shared_under_a_policy(
    tmp_path: Path, before: list[Row]
):
    friends = flows.policy(tmp_path, "team-a", "team-b")
    larger = [*distinct(300, 2), *before, *distinct(200, 3)]
    theirs = flow(tmp_path, "theirs", larger, "team-b")
    run(tmp_path, theirs, friends)
    ours = flow(tmp_path, "ours", before)
    status = run(tmp_path, ours, friends)
    assert rows_run(tmp_path, status) <= 0.1 * ROWS
    assert status["saved_nanousd"] > 0
    (shared,) = answer("receipt", "--all", cwd=tmp_path)["shared"]
    assert (shared["taker"], shared["giver"]) == ("team-a/ours", "team-b/theirs")
    assert [outputs(status)] == from_nothing(tmp_path, ours)
    apart = answer("run", ours, "--no-policies", "-n", "team-c", cwd=tmp_path)["runs"][0]
    assert (rows_run(tmp_path, apart), apart["hits"]) == (ROWS, 0)
    assert outputs(apart) == outputs(status)
