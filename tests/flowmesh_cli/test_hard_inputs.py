"""Hard inputs on one running fabric: each ends clearly, and the fabric serves on after each."""

import json
from typing import Any

import pytest
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_cli.shared_fabric import SharedFabric

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow

NOWHERE = {
    "a hub that is out of reach": (
        {"model": "hf://nobody/nothing"},
        "may not reach the hub (HF_HUB_OFFLINE is set)",
        "use builtin:",
    ),
    "a server inside": (
        {"dataset": "https://127.0.0.1:1/x.jsonl"},
        "is not a public address",
        "upload the file",
    ),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_an_unavailable_input_is_reported(fabric: SharedFabric, name: str) -> None:
    source, reason, remedy = NOWHERE[name]
    spec: dict[str, Any] = {"inputs": {"x": source, "r": {"rows": [{"q": "1"}]}}, "outputs": {}}
    generate = {"inputs": {"model": "inputs.x", "rows": "inputs.r"}, "with": {"prompt": "{{ q }}"}}
    read = {"inputs": {"rows": "inputs.x"}, "with": {"query": "select 1 as x"}}
    spec["steps"] = [
        {"name": "a", "uses": "llm.generate", **generate}
        if "model" in source
        else {"name": "a", "uses": "data.sql", **read}
    ]
    done = fabric.run(spec)
    assert done.returncode == ExitCode.FAILED
    assert "failed in step inputs.x.pin: bad-input" in done.stderr
    assert reason in done.stderr
    assert f"try: {remedy}" in done.stderr
    fabric.still_serves()


def test_missing_columns_known_only_to_the_worker_are_reported_before_the_engine_loads(
    fabric: SharedFabric,
) -> None:
    model = fabric.folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")  # no engine could load this
    first = {
        "name": "first",
        "uses": "code.python",
        "with": {"code": "def main():\n  return [{'question': 'x', 'target': 'y'}]"},
    }
    rows = {"inputs": {"rows": "first.rows"}}
    wants = {
        "prompt": {
            "uses": "llm.generate",
            "inputs": {"model": "inputs.m", "rows": "first.rows"},
            "with": {"prompt": "{{ question }} {{ hint }}"},
        },
        "prediction": {
            "uses": "eval.exact-match",
            **rows,
            "with": {"prediction": "hint", "target": "target"},
        },
    }
    for place, step in wants.items():
        inputs = {"m": {"model": "./model"}} if place == "prompt" else {}
        spec = {"inputs": inputs, "steps": [first, {"name": "a", **step}], "outputs": {}}
        done = fabric.run(spec)
        assert done.returncode == ExitCode.FAILED
        wanted = f"with.{place} names 'hint', and input 'rows' has no such column\n"
        assert wanted + "  try: its columns are question, target\n" in done.stderr
    fabric.still_serves()


@pytest.mark.parametrize("source", ["inline", "file", "sql", "python"])
def test_an_empty_data_set_passes_through_every_engine(fabric: SharedFabric, source: str) -> None:
    (fabric.folder / "none.jsonl").write_text("")
    inputs = {"inline": {"rows": []}, "file": {"dataset": "./none.jsonl"}}.get(source)
    makes = {
        "sql": {"uses": "data.sql", "with": {"query": "select 'a' as p, 'b' as t where false"}},
        "python": {"uses": "code.python", "with": {"code": "def main():\n  return []"}},
    }
    rows = "inputs.rows" if inputs else "made.rows"
    read = {"inputs": {"rows": rows}}
    steps = [
        {"name": "all", "uses": "data.sql", **read, "with": {"query": "select * from rows"}},
        {
            "name": "count",
            "uses": "data.sql",
            **read,
            "with": {"query": "select count(*) as n from rows"},
        },
        {
            "name": "map",
            "uses": "test.map",
            "inputs": {"rows": "all.rows"},
        },
        {
            "name": "code",
            "uses": "code.python",
            "inputs": {"rows": "map.rows"},
            "with": {"code": "def main(rows):\n  return [*rows, *rows]"},
        },
        {
            "name": "score",
            "uses": "eval.exact-match",
            "inputs": {"rows": "code.rows"},
            "with": {"prediction": "p", "target": "t"},
        },
    ]
    if not inputs:
        steps.insert(0, {"name": "made", **makes[source]})
    spec = {
        "inputs": {"rows": inputs} if inputs else {},
        "steps": steps,
        "outputs": {"rows": "code.rows", "count": "count.rows", "score": "score.metrics"},
    }
    run = fabric.answer(spec, name=f"none-{source}")
    assert run["outputs"]["score"]["value"] == {"accuracy": None, "count": 0}
    into = fabric.folder / f"none-{source}"
    for form in ("jsonl", "parquet"):
        told = fmesh("outputs", run["uid"], "--download", into, "--format", form, cwd=fabric.folder)
        assert told.returncode == 0, told.stderr
    assert (into / "rows.jsonl").read_text() == ""
    assert (into / "count.jsonl").read_text() == '{"n":0}\n'
    assert (into / "rows.parquet").read_bytes()[:4] == b"PAR1"
    fabric.still_serves()


def test_one_row_of_five_megabytes_passes_whole(fabric: SharedFabric) -> None:
    row = {"q": "é" * 2_500_000, "t": "x"}
    (fabric.folder / "large.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    code = "def main(rows):\n  return [{**r, 'size': len(r['q'])} for r in rows]"
    spec = {
        "inputs": {"rows": {"dataset": "./large.jsonl"}},
        "steps": [
            {
                "name": "sql",
                "uses": "data.sql",
                "inputs": {"rows": "inputs.rows"},
                "with": {"query": "select q, t from rows"},
            },
            {"name": "map", "uses": "test.map", "inputs": {"rows": "sql.rows"}},
            {
                "name": "code",
                "uses": "code.python",
                "inputs": {"rows": "map.rows"},
                "with": {"code": code},
            },
        ],
        "outputs": {"rows": "code.rows"},
    }
    run = fabric.answer(spec, name="large")
    fmesh("outputs", run["uid"], "--download", fabric.folder / "out", cwd=fabric.folder)
    (found,) = (fabric.folder / "out" / "rows.jsonl").read_text().splitlines()
    assert json.loads(found).items() >= {**row, "size": 2_500_000}.items()
    fabric.still_serves()


def test_unusual_names_unusual_values_and_large_output_cause_no_failure(
    fabric: SharedFabric,
) -> None:
    odd = {"naïve \"q\" 'x'": "1", "列": "é\n\x00", "select": None, "A": 1}
    quote = "'; drop table rows; --"
    steps = [
        {
            "name": "sql",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.rows"},
            "with": {"query": "select * from rows"},
        },
        {
            "name": "code",
            "uses": "code.python",
            "inputs": {"rows": "sql.rows"},
            "with": {
                "code": "def main(rows, said):\n"
                "  for _ in range(100):\n    print('x' * 1_000_000)\n"
                "  return [{**r, 'said': said} for r in rows]",
                "args": {"said": "${params.quote} $${params.quote} {{ 7 * 7 }}"},
            },
        },
        {
            "name": "many",
            "uses": "data.sql",
            "with": {"query": "select range as i, 'row ' || range as t from range(200000)"},
        },
    ]
    spec = {
        "params": {"quote": quote},
        "inputs": {"rows": {"rows": [odd]}},
        "steps": steps,
        "outputs": {"rows": "code.rows", "many": "many.rows"},
    }
    run = fabric.answer(spec, name="odd")
    assert run["outputs"]["many"]["rows"] == 200_000
    into = fabric.folder / "odd"
    fmesh("outputs", run["uid"], "--download", into, cwd=fabric.folder)
    (found,) = (into / "rows.jsonl").read_text().splitlines()
    assert json.loads(found) == {**odd, "said": f"{quote} ${{params.quote}} {{{{ 7 * 7 }}}}"}
    fabric.still_serves()


def test_a_model_directory_with_broken_or_cyclic_links_fails_only_its_run(
    fabric: SharedFabric,
) -> None:
    model = fabric.folder / "linked"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "gone").symlink_to("/nowhere/at/all")
    (model / "round").symlink_to(".")
    spec = {
        "inputs": {"m": {"model": "./linked"}, "r": {"rows": [{"q": "1"}]}},
        "steps": [
            {
                "name": "a",
                "uses": "llm.generate",
                "inputs": {"model": "inputs.m", "rows": "inputs.r"},
                "with": {"prompt": "{{ q }}"},
            }
        ],
        "outputs": {},
    }
    done = fabric.run(spec)
    assert done.returncode == ExitCode.FAILED
    assert "the model has no *.safetensors files" in done.stderr
    fabric.still_serves()
