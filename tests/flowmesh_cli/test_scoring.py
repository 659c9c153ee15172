"""Retrieval and the whole-set scores on a fabric: many chunks of queries, one set of scores."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer

pytestmark = pytest.mark.slow

Row = dict[str, Any]
CORPUS, QUERIES = 50, 150


def direction(number: float) -> list[float]:
    angle = 2 * math.pi * number / CORPUS
    return [math.cos(angle), math.sin(angle)]


def step(name: str, uses: str, inputs: dict[str, str], **params: Any) -> Row:
    return {"name": name, "uses": uses, "inputs": inputs, "with": params}


def spec() -> Row:
    label = (
        "select *, (found->>'$[0].name') as said, found->>'$[0].name' = target as right from rows"
    )
    return {
        "inputs": {n: {"dataset": f"./{n}.jsonl"} for n in ("corpus", "queries")},
        "steps": [
            step(
                "search",
                "retrieve.topk",
                {"rows": "inputs.queries", "corpus": "inputs.corpus"},
                vector="v",
                corpusVector="v",
                k=2,
                columns=["name"],
                context="names",
                join="name",
            ),
            step("read", "data.sql", {"rows": "search.rows"}, query=label),
            step(
                "passed",
                "eval.pass-at-k",
                {"rows": "read.rows"},
                problem=["target"],
                correct="right",
                k=[1, 3],
            ),
            step(
                "chosen",
                "eval.multiple-choice",
                {"rows": "read.rows"},
                completion="names",
                choices="choices",
                answer="target",
                answerIs="text",
            ),
            step(
                "won",
                "eval.win-rate",
                {"rows": "read.rows"},
                verdict="said",
                labelA="n0",
                labelB="n1",
            ),
        ],
        "outputs": {
            "found": "search.rows",
            **{n: f"{n}.metrics" for n in ("passed", "chosen", "won")},
        },
    }


def test_queries_find_their_rows_and_are_scored(tmp_path: Path) -> None:
    corpus = [{"name": f"n{i}", "v": direction(i)} for i in range(CORPUS)]
    queries = [
        {
            "id": i,
            "target": f"n{i % CORPUS}",
            "v": direction(i % CORPUS + 0.2),
            "choices": [f"n{i % CORPUS}", "none"],
        }
        for i in range(QUERIES)
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (run,) = answer("run", flows.write(tmp_path, "scored", spec()), cwd=tmp_path)["runs"]
    steps = {s["path"]: s for s in run["steps"]}
    assert steps["search"]["actions"] > 1
    assert all(steps[n]["actions"] == 1 for n in ("passed", "chosen", "won"))
    answer("outputs", "--download", tmp_path / "out", cwd=tmp_path)
    found = [
        json.loads(line) for line in (tmp_path / "out" / "found.jsonl").read_text().splitlines()
    ]
    assert [r["id"] for r in found] == list(range(QUERIES))
    for row in found:
        following = f"n{(int(row['target'][1:]) + 1) % CORPUS}"
        assert [f["name"] for f in row["found"]] == [row["target"], following]
        assert row["names"] == f"{row['target']}\n{following}"
    passed, chosen, won = (
        json.loads((tmp_path / "out" / f"{n}.json").read_text())
        for n in ("passed", "chosen", "won")
    )
    assert (passed["problems"], passed["samples"], passed["pass_at_3"]) == (CORPUS, QUERIES, 1)
    assert (chosen["accuracy"], chosen["unparsed"]) == (1, 0)
    assert (won["wins"], won["losses"], won["unparsed"]) == (3, 3, QUERIES - 6)
