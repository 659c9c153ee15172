"""A data set of a hub through the whole fabric: compiled, resolved, fetched and read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_worker.hub import GSM8K, MODEL, TEST, TRAIN, Hub, commit, in_thread

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serves a fake hub in a thread."""
    with in_thread() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("FLOWMESH_IMPORT_ALLOW", "127.0.0.1/32")
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        yield hub


def test_a_run_reads_rows_from_a_hub_and_an_invalid_address_is_reported(
    hub: Hub, tmp_path: Path
) -> None:
    spec = {
        "inputs": {
            "file": {"dataset": f"hf://datasets/openai/gsm8k/{TRAIN}@main"},
            "parts": {"dataset": "hf://org/parts", "limit": 5, "columns": ["question"]},
            "part": {"dataset": "hf://openai/gsm8k", "config": "main", "split": "test"},
            "local": {"dataset": "./local.jsonl", "limit": 1, "columns": ["question"]},
        },
        "steps": [
            {
                "name": "both",
                "uses": "data.sql",
                "inputs": {name: f"inputs.{name}" for name in ("file", "parts", "part", "local")},
                "with": {
                    "query": "select question from file union all select question from parts"
                    " union all select question from part union all select * from local order by 1"
                },
            }
        ],
        "outputs": {"both": "both.rows"},
    }
    local = [{"question": f"local {n}?", "answer": "!"} for n in range(3)]
    (tmp_path / "local.jsonl").write_text("".join(json.dumps(row) + "\n" for row in local))
    flow = flows.write(tmp_path, "both", spec)
    done = fmesh("run", flow, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["outputs"]["both"]["rows"] == 2 + 5 + 2 + 1
    several = {**spec["inputs"], "file": {"dataset": "hf://datasets/openai/gsm8k"}}  # type: ignore[dict-item]
    flow = flows.write(tmp_path, "several", {**spec, "inputs": several})
    done = fmesh("run", flow, cwd=tmp_path)
    assert done.returncode == ExitCode.FAILED
    assert "failed in step inputs.file.pin: bad-input" in done.stderr
    assert "openai/gsm8k has configs main, socratic; say config:" in done.stderr


def test_a_plan_that_resolves_shows_the_bytes_and_what_is_published_already(
    hub: Hub, tmp_path: Path
) -> None:
    inputs = {"part": {"dataset": "hf://openai/gsm8k", "config": "main", "split": "test"}}
    ask = {"name": "ask", "uses": "data.sql", "inputs": {"rows": "inputs.part"}}
    steps = [{**ask, "with": {"query": "select question from rows"}}]
    flow = flows.write(tmp_path, "flow", {"inputs": inputs, "steps": steps})

    def planned(*options: str) -> str:
        done = fmesh("plan", flow, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (line,) = re.findall(r"inputs\.part +dataset.*", done.stdout)
        return line

    assert " unknown " in planned()
    assert " ? " in planned()
    assert re.search(rf" run .* {len(GSM8K[TEST])} B ", planned("--resolve"))
    assert fmesh("run", flow, cwd=tmp_path).returncode == 0
    assert " hit " in planned("--resolve")

    inputs["part"]["split"] = "trian"
    flow = flows.write(tmp_path, "flow", {"inputs": inputs, "steps": steps})
    done = fmesh("plan", flow, "--resolve", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert re.search(r"flow\S*: spec\.inputs\.part: no split 'trian' in openai/gsm8k", done.stderr)
    (listed,) = json.loads(fmesh("list", "--json", cwd=tmp_path).stdout)["runs"]
    assert listed["name"] == "flow"  # those that resolved are deleted


def test_a_plan_that_resolves_shows_the_bytes_of_models_or_why_it_cannot(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {
        "base": {"model": "hf://org/model"},
        "built": {"model": "smollm2-135m-instruct"},
        "questions": {"rows": [{"question": "why?"}]},
    }
    steps = [
        {
            "name": f"ask-{name}",
            "uses": "llm.generate",
            "inputs": {"model": f"inputs.{name}", "rows": "inputs.questions"},
            "with": {"prompt": "{{ question }}", "maxTokens": 1},
        }
        for name in ("base", "built")
    ]
    flow = flows.write(tmp_path, "flow", {"inputs": inputs, "steps": steps})

    def fetches() -> tuple[str, str, str]:
        """Returns what both models fetch, and the notes."""
        done = fmesh("plan", flow, "--resolve", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        rows = [re.split(" {2,}", line) for line in done.stdout.splitlines()]
        (headings,) = (row for row in rows if row[0] == "step")
        cells = {row[0]: row[headings.index("fetches")] for row in rows if "model.import" in row}
        return cells["inputs.base"], cells["inputs.built"], done.stderr

    assert fetches()[:2] == ("4.9 KiB", "-")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    base, built, notes = fetches()
    assert (base, built) == ("?", "-")
    assert "inputs.base: a run would fail: this worker may not reach the hub (HF_HUB_OF" in notes
    cached = tmp_path / "cache" / "hub" / "models--org--model"
    snapshot = cached / "snapshots" / commit("1")
    snapshot.mkdir(parents=True)
    for name, content in MODEL.items():
        (snapshot / name).write_bytes(content)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit("1"))
    base, _, notes = fetches()
    assert base == "4.9 KiB"
    assert "HF_HUB_OFFLINE" in notes
