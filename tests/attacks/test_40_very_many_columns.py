"""Attacker: T1, a tenant who may upload and submit; T5, a file of somebody else's.
Action: uploads rows of 60,000 columns, writes them in a workflow, or lets a step return them.
Must not happen: they are stored, or refused only after the work that their columns cost.
"""

from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from tests.attacks.one_fabric import fabric_at
from tests.flowmesh_control.fabric import workflow

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_store.datasets.budget import COLUMNS_MAX
from flowmesh_worker.engine_api import Rows
from flowmesh_worker.host.results import prepare_outputs
from flowmesh_worker.host.work import AttemptDir

pytestmark = pytest.mark.slow

COLUMNS = 60_000


def names(count: int) -> list[str]:
    return [f"c{n}" for n in range(count)]


def json_lines(count: int) -> bytes:
    return orjson.dumps(dict.fromkeys(names(count), 1)) + b"\n"


def in_turn(count: int) -> bytes:
    """Each row has columns of its own, so that only all together are many."""
    keys, part = names(count), max(1, count // 100)
    rows = [dict.fromkeys(keys[n : n + part], 1) for n in range(0, count, part)]
    return b"\n".join(map(orjson.dumps, rows))


def csv(count: int) -> bytes:
    return (",".join(names(count)) + "\n" + ",".join(["1"] * count) + "\n").encode()


FILES: dict[str, Callable[[int], bytes]] = {
    "x.jsonl": json_lines,
    "y.jsonl": in_turn,
    "x.json": lambda count: b"[" + json_lines(count).strip() + b"]",
    "x.csv": csv,
    "x.tsv": lambda count: csv(count).replace(b",", b"\t"),
}


@pytest.mark.parametrize("name", FILES)
async def test_no_file_has_more_columns_than_the_limit(name: str, tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        path = f"/v1/datasets?namespace=team-a&name={name}"
        for count in (COLUMNS, COLUMNS_MAX + 1):
            told = await fabric.call("POST", path, data=FILES[name](count), status=400)
            assert "columns" in told["error"]["message"], told
        found = await fabric.call("POST", path, data=FILES[name](COLUMNS_MAX), status=201)
        assert len(found["columns"]) == COLUMNS_MAX


async def test_no_rows_of_a_workflow_have(tmp_path: Path) -> None:
    async with fabric_at(tmp_path) as fabric:
        for count, status in ((COLUMNS, 400), (100, 200)):
            spec = {
                "inputs": {"x": {"rows": [dict.fromkeys(names(count), 1)]}},
                "steps": [{"name": "a", "uses": "test.noop"}],
            }
            body = {"document": workflow("wide", spec)}
            told = await fabric.call("POST", "/v1/plan", body=body, status=status)
            assert status == 200 or "columns" in told["error"]["message"], told


def of_a_query(count: int) -> Rows:
    return Rows(pa.table([pa.array([1])] * count, names(count)))


def of_code(count: int) -> Rows:
    return Rows([dict.fromkeys(names(count), 1)])


@pytest.mark.parametrize("output", [of_a_query, of_code])
async def test_no_step_stores_more(output: Callable[[int], Rows], tmp_path: Path) -> None:
    directory = AttemptDir(str(tmp_path / "attempt"))
    for count in (COLUMNS, COLUMNS_MAX + 1):
        for row_output in ("", "rows"):
            with pytest.raises(AttemptError, match="more than 4,096 columns") as refused:
                await prepare_outputs({"rows": output(count)}, row_output, directory)
            assert refused.value.failure.kind == FailureKind.BAD_INPUT
    prepared = await prepare_outputs({"rows": output(COLUMNS_MAX)}, "", directory)
    manifest = prepared["rows"].manifest
    assert manifest is not None
    assert len(manifest.schema.columns) == COLUMNS_MAX
