"""Blobs corrupted, truncated and deleted under a running fabric: repaired, or a clear error."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric

from flowmesh_cli.exits import ExitCode
from flowmesh_store.hashing import digest_of_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROWS = 400


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFabric]:
    with shared_fabric(tmp_path_factory.mktemp("damaged")) as found:
        yield found


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "corrupt": corrupt,
    "truncate": truncate,
    "delete": Path.unlink,
}


def blobs(fabric: SharedFabric, *, cached: bool) -> set[Path]:
    """The blobs of the store, or those that its worker keeps near."""
    place = "workers/*/cache/blobs/cas/*/*" if cached else "cas/*/*"
    return set(fabric.store.glob(place))


def flow(name: str, tail: str = "") -> dict[str, Any]:
    """Makes rows from an upload; with a tail, another step reads them."""
    query = f"select i, t, '{name}' as name from rows order by all"
    steps: list[dict[str, Any]] = [
        {"name": "made", "uses": "data.sql", "inputs": {"rows": "inputs.rows"}}
    ]
    steps[0]["with"] = {"query": query}
    if tail:
        steps.append({"name": "tail", "uses": "data.sql", "inputs": {"rows": "made.rows"}})
        steps[1]["with"] = {"query": f"select count(*) as n, '{tail}' as tail from rows"}
    outputs = {"rows": "tail.rows" if tail else "made.rows"}
    return {"inputs": {"rows": {"dataset": f"./{name}.jsonl"}}, "steps": steps, "outputs": outputs}


def upload(fabric: SharedFabric, name: str) -> None:
    lines = (json.dumps({"i": i, "t": f"{name}-{i * 7919 % 1000}" * 20}) for i in range(ROWS))
    (fabric.folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def generations(fabric: SharedFabric) -> list[int]:
    """Of all published results."""
    found = fabric.store.glob("actions/*/*")
    return sorted(json.loads(path.read_bytes()).get("generation", 1) for path in found)


def rows_of(fabric: SharedFabric, run: dict[str, Any]) -> list[dict[str, Any]]:
    into = fabric.folder / f"out-{run['uid']}"
    done = fmesh("outputs", run["uid"], "--download", into, cwd=fabric.folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (into / "rows.jsonl").read_text().splitlines()]


def spoiled(fabric: SharedFabric, before: set[Path]) -> list[str]:
    """Blobs that are not what they are named for, of those that were not there before."""
    return [p.name for p in blobs(fabric, cached=False) - before if digest_of_file(p) != p.name]


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_intermediate_that_a_new_step_needs_is_made_again(
    fabric: SharedFabric, damage: str
) -> None:
    name = f"needed-{damage}"
    upload(fabric, name)
    before = blobs(fabric, cached=False)
    fabric.answer(flow(name))
    made = blobs(fabric, cached=False) - before
    assert made
    highest = len([g for g in generations(fabric) if g > 1])
    for path in made:
        DAMAGES[damage](path)
    for path in blobs(fabric, cached=True):
        path.unlink()
    run = fabric.answer(flow(name, tail=damage))
    assert rows_of(fabric, run) == [{"n": ROWS, "tail": damage}]
    steps = {step["path"]: step for step in run["steps"]}
    assert steps["made"]["executed"] == 1, "it ran again"
    assert len([g for g in generations(fabric) if g > 1]) == highest + 1
    assert rows_of(fabric, fabric.answer(flow(name)))[0]["name"] == name
    assert spoiled(fabric, before) == []
    fabric.still_serves()


@pytest.mark.parametrize("damage", ["corrupt", "truncate", "delete"])
def test_what_spoils_in_the_workers_own_cache_is_fetched_again(
    fabric: SharedFabric, damage: str
) -> None:
    name = f"near-{damage}"
    upload(fabric, name)
    fabric.answer(flow(name))
    fabric.answer(flow(name, tail="once"))  # so that the worker has read it once
    before = generations(fabric)
    for path in blobs(fabric, cached=True):
        DAMAGES[damage](path)
    run = fabric.answer(flow(name, tail="twice"))
    assert rows_of(fabric, run) == [{"n": ROWS, "tail": "twice"}]
    assert generations(fabric) == sorted([*before, 1]), "nothing but the new step ran"
    fabric.still_serves()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_lost_output_is_told_and_made_again_by_the_same_command(
    fabric: SharedFabric, damage: str
) -> None:
    name = f"output-{damage}"
    upload(fabric, name)
    before = blobs(fabric, cached=False)
    first = fabric.answer(flow(name))
    expected = rows_of(fabric, first)
    for path in blobs(fabric, cached=False) - before:
        DAMAGES[damage](path)
    lost = fmesh("outputs", first["uid"], "--download", fabric.folder / "lost", cwd=fabric.folder)
    assert lost.returncode == ExitCode.NOT_FOUND
    assert "remedy: " in lost.stderr
    assert not list((fabric.folder / "lost").iterdir()), "nothing appears in part"
    again = fabric.answer(flow(name))
    assert rows_of(fabric, again) == expected
    fabric.still_serves()


def test_rows_that_only_a_reference_names_are_asked_for_again_when_they_are_lost(
    fabric: SharedFabric,
) -> None:
    upload(fabric, "named")
    before = blobs(fabric, cached=False)
    run = fabric.answer(flow("named"))
    reference = run["outputs"]["rows"]["reference"]
    for path in blobs(fabric, cached=True) | (blobs(fabric, cached=False) - before):
        if path.name != reference.removeprefix("cas:").partition(".")[0]:
            path.unlink(missing_ok=True)
    spec = flow("named", tail="x")
    spec["inputs"]["rows"] = {"dataset": reference}
    done = fabric.run(spec)
    assert done.returncode == ExitCode.FAILED
    assert "failed in step made: missing-blob" in done.stderr
    assert "try: " in done.stderr
    fabric.still_serves()
