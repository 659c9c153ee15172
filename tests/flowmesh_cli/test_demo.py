"""The demo itself, on the real model under vLLM; and a model of the user's own folder."""

import shutil
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, children_s, fmesh

ROOT = Path(__file__).resolve().parents[2]
MODEL_STEPS = ("inputs.base", "sample", "ask", "story")

pytestmark = [pytest.mark.slow, pytest.mark.model]


def test_the_demo_shares_adds_up_and_is_all_hits_the_second_time(tmp_path: Path):
    files = sorted((ROOT / "examples" / "demo").glob("*.yaml"))
    first = fmesh("run", *files, cwd=tmp_path, timeout_s=1000)
    assert first.returncode == 0, first.stderr
    assert "because cache policy research lets team-a, team-b, team-c share" in first.stdout
    before = children_s()
    second = answer("run", *files, cwd=tmp_path)
    assert children_s() - before < 20
    runs = second["runs"]
    steps = [s for run in runs for s in run["steps"] if s["path"] in MODEL_STEPS]
    assert len(steps) == 7
    assert all(s["hits"] == s["actions"] and not s["executed"] for s in steps)
    book = answer("receipt", "--all", cwd=tmp_path)
    paid = sum(r["paid_nanousd"] for r in book["receipts"])
    assert paid + book["fabric"]["fabric_nanousd"] == book["fabric"]["bill_nanousd"]
    ran = sum(r["executed"] for r in book["receipts"])
    assert book["fabric"]["executed"] == ran
    apart = sum(r["executed"] + r["hits"] + r["in_flight"] for r in totals(book["receipts"][:3]))
    assert ran < apart


def totals(receipts: list[dict]) -> list[dict[str, int]]:
    fields = ("executed", "hits", "in_flight")
    return [{f: sum(line[f] for line in r["lines"]) for f in fields} for r in receipts]


def test_a_model_of_the_users_own_folder_is_uploaded_and_runs(tiny_model: Path, tmp_path: Path):
    shutil.copytree(tiny_model, tmp_path / "tiny")
    flows.questions(tmp_path, 4)
    generate = {
        "prompt": "{{ question }}",
        "maxTokens": 4,
        "seed": 1,
        "dtype": "float32",
        "implementation": "transformers",
    }
    spec = {
        "inputs": {"base": {"model": "./tiny"}, "rows": {"dataset": "./questions.jsonl"}},
        "steps": [
            {
                "name": "say",
                "uses": "llm.generate",
                "inputs": {"model": "inputs.base", "rows": "inputs.rows"},
                "with": generate,
            }
        ],
        "outputs": {"said": "say.rows"},
    }
    flow = flows.write(tmp_path, "own", spec)
    done = fmesh("run", flow, cwd=tmp_path, timeout_s=1000)
    assert done.returncode == 0, done.stderr
    assert "output said: dataset, 4 rows" in done.stdout
    shutil.rmtree(tmp_path / "tiny")
    broken = fmesh("run", flow, cwd=tmp_path)
    assert broken.returncode == 2
    assert "does not exist" in broken.stderr
