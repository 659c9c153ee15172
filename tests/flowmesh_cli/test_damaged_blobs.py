"""Blobs corrupted, truncated and deleted under a running fabric: repaired, or a clear error."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric
from tests.flowmesh_store.published import published

from flowmesh_cli.exit_codes import ExitCode
from flowmesh_store.hashing import digest_of_file

pytestmark = pytest.mark.slow

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
    """Returns the blobs of the store, or those in the worker's cache."""
    place = "workers/*/cache/blobs/cas/*/*/*" if cached else "cas/*/*/*"
    return set(fabric.store.glob(place))


def flow(name: str, tail: str = "") -> dict[str, Any]:
    """Returns a workflow that maps an upload; with a tail, another step reads the rows."""
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
    """Returns the generations of all published results."""
    found = published(fabric.store).values()
    return sorted(json.loads(record.data).get("generation", 1) for record in found)


def rows_of(fabric: SharedFabric, run: dict[str, Any]) -> list[dict[str, Any]]:
    into = fabric.folder / f"out-{run['uid']}"
    done = fmesh("outputs", run["uid"], "--download", into, cwd=fabric.folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (into / "rows.jsonl").read_text().splitlines()]


def spoiled(fabric: SharedFabric, before: set[Path]) -> list[str]:
    """Returns new blobs whose content differs from their digest."""
    return [p.name for p in blobs(fabric, cached=False) - before if digest_of_file(p) != p.name]


def named(kind: str) -> dict[str, str]:
    """Returns a separate workflow's name for each kind of damage."""
    return {damage: f"{kind}-{damage}" for damage in DAMAGES}


def test_lost_intermediates_that_new_steps_need_are_recomputed(fabric: SharedFabric) -> None:
    names = named("needed")
    before = blobs(fabric, cached=False)
    for damage, name in names.items():
        upload(fabric, name)
        known = blobs(fabric, cached=False)
        fabric.answer(flow(name))
        made = blobs(fabric, cached=False) - known
        assert made
        for path in made:
            DAMAGES[damage](path)
    highest = len([g for g in generations(fabric) if g > 1])
    for path in blobs(fabric, cached=True):
        path.unlink()
    runs = fabric.answers({name: flow(name, tail=damage) for damage, name in names.items()})
    for damage, run in zip(names, runs, strict=True):
        assert rows_of(fabric, run) == [{"n": ROWS, "tail": damage}]
        steps = {step["path"]: step for step in run["steps"]}
        assert steps["made"]["executed"] == 1, "it ran again"
    assert len([g for g in generations(fabric) if g > 1]) == highest + len(names)
    for name, run in zip(
        names.values(), fabric.answers({n: flow(n) for n in names.values()}), strict=True
    ):
        assert rows_of(fabric, run)[0]["name"] == name
    assert spoiled(fabric, before) == []
    fabric.still_serves()


def test_a_damaged_blob_in_the_workers_cache_is_fetched_again(fabric: SharedFabric) -> None:
    names = named("near")
    near: dict[str, set[Path]] = {}
    for damage, name in names.items():
        upload(fabric, name)
        known = blobs(fabric, cached=True)
        fabric.answer(flow(name, tail="once"))  # so that the worker has read it once
        near[damage] = blobs(fabric, cached=True) - known
        assert near[damage]
    before = generations(fabric)
    for damage, paths in near.items():
        for path in paths:
            DAMAGES[damage](path)
    runs = fabric.answers({name: flow(name, tail="twice") for name in names.values()})
    for run in runs:
        assert rows_of(fabric, run) == [{"n": ROWS, "tail": "twice"}]
    assert generations(fabric) == sorted([*before, 1, 1, 1]), "nothing but the new steps ran"
    fabric.still_serves()


def test_lost_outputs_are_reported_and_recomputed_by_the_same_command(fabric: SharedFabric) -> None:
    names = named("output")
    firsts, expected = [], []
    for damage, name in names.items():
        upload(fabric, name)
        before = blobs(fabric, cached=False)
        firsts.append(fabric.answer(flow(name)))
        expected.append(rows_of(fabric, firsts[-1]))
        for path in blobs(fabric, cached=False) - before:
            DAMAGES[damage](path)
    for first in firsts:
        into = fabric.folder / f"lost-{first['uid']}"
        lost = fmesh("outputs", first["uid"], "--download", into, cwd=fabric.folder)
        assert lost.returncode == ExitCode.NOT_FOUND
        assert "remedy: " in lost.stderr
        assert not list(into.iterdir()), "nothing appears in part"
    again = fabric.answers({name: flow(name) for name in names.values()})
    assert [rows_of(fabric, run) for run in again] == expected
    fabric.still_serves()


def test_lost_rows_of_a_reference_fail_the_run_with_a_request_to_upload_them_again(
    fabric: SharedFabric,
) -> None:
    upload(fabric, "named")
    before = blobs(fabric, cached=False)
    run = fabric.answer(flow("named"))
    reference = run["outputs"]["rows"]["reference"]
    for path in blobs(fabric, cached=True) | (blobs(fabric, cached=False) - before):
        if path.name != reference.rpartition(":")[2].partition(".")[0]:
            path.unlink(missing_ok=True)
    spec = flow("named", tail="x")
    spec["inputs"]["rows"] = {"dataset": reference}
    done = fabric.run(spec)
    assert done.returncode == ExitCode.FAILED
    assert "failed in step made: missing-blob" in done.stderr
    assert "try: " in done.stderr
    fabric.still_serves()
