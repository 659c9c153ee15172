"""Training on a tiny model: lineage of its results, and their reproducibility."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

pytestmark = [pytest.mark.slow, pytest.mark.model]


def trained() -> dict[str, Any]:
    """Returns a workflow: it trains an adapter, generates with it and scores the answers."""
    return {
        "inputs": {"base": {"model": "./tiny"}, "questions": {"dataset": "./questions.jsonl"}},
        "steps": [
            {
                "name": "tune",
                "uses": "train.sft",
                "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
                "with": {
                    "prompt": "{{ question }}",
                    "completion": "{{ target }}",
                    "use_peft": True,
                    "max_steps": 2,
                    "max_length": 16,
                    "dtype": "float32",
                },
            },
            {
                "name": "say",
                "uses": "llm.generate",
                "inputs": {
                    "model": "inputs.base",
                    "adapter": "tune.adapter",
                    "rows": "inputs.questions",
                },
                "with": {
                    "prompt": "{{ question }}",
                    "dtype": "float32",
                    "implementation": "transformers",
                    "maxTokens": 4,
                    "temperature": 1.0,
                    "seed": 7,
                },
            },
            {
                "name": "score",
                "uses": "eval.exact-match",
                "inputs": {"rows": "say.rows"},
                "with": {"prediction": "completion", "target": "target"},
            },
        ],
        "outputs": {"adapter": "tune.adapter", "score": "score.metrics"},
    }


@pytest.fixture(scope="module")
def ended(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(tiny_model, folder / "tiny")
    flows.questions(folder, rows=20)
    done = fmesh("run", flows.write(folder, "flow", trained()), cwd=folder, timeout_s=1000)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_score_is_followed_through_training_to_rows_model_and_library_versions(
    ended: Path,
) -> None:
    up = answer("lineage", "flow/score", cwd=ended)
    steps = {d["step"]: d for d in up["derivations"]}
    assert next(iter(steps)) == "score"
    assert set(steps) == {"score", "say", "tune"}
    tune, say = steps["tune"], steps["say"]
    assert tune["params"]["max_steps"] == 2
    assert tune["fields"]["dtype"] == "float32"
    [maker] = tune["makers"]
    assert {"trl", "torch", "transformers"} <= set(maker["libraries"])
    assert say["inputs"]["adapter"] == [tune["outputs"]["adapter"]]
    assert say["inputs"]["model"] == tune["inputs"]["model"]
    assert say["inputs"]["rows"] == tune["inputs"]["rows"]
    shown = fmesh("lineage", "flow/score", cwd=ended).stdout
    model = tune["inputs"]["model"][0]
    assert shown.count("by train.sft") == shown.count("by llm.generate") == 1
    assert f"from model: model {model[:12]}" in shown
    down = answer("lineage", model[:12], "--down", cwd=ended)
    assert {d["step"] for d in down["derivations"]} == {"tune", "say", "score"}


def test_training_and_generation_give_the_same_results_when_repeated(ended: Path) -> None:
    done = fmesh("audit", "flow", "--sample", "100%", "--json", cwd=ended, timeout_s=1000)
    assert done.returncode == 0, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert {(f["check"]["step"], f["verdict"]) for f in report["findings"]} == {
        ("tune", "same"),
        ("say", "same"),
        ("score", "same"),
    }
    assert {f["check"]["determinism"] for f in report["findings"]} == {"seeded", "exact"}
