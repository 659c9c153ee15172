"""Two tenants whose post-training differs in the DPO step alone: the rest runs once."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, fmesh

pytestmark = [pytest.mark.nightly, pytest.mark.model]

BEFORE = ("sft", "tuned", "pairs")
TRAINING = {"max_steps": 2, "max_length": 16, "dtype": "float32", "use_peft": True}


def post_training(beta: float) -> dict[str, Any]:
    """Fine-tuning, a merge, pairs, and preferences of a given strength."""

    def step(name: str, uses: str, with_: dict[str, Any], **inputs: str) -> dict[str, Any]:
        return {"name": name, "uses": uses, "inputs": inputs, "with": with_}

    pairs = "select question, target as chosen, question || '?' as rejected from rows order by all"
    learn = {"prompt": "{{ question }}", "completion": "{{ target }}", **TRAINING}
    prefer = {
        "prompt": "{{ question }}",
        "chosen": "{{ chosen }}",
        "rejected": "{{ rejected }}",
        "beta": beta,
        **TRAINING,
    }
    return {
        "inputs": {"base": {"model": "./tiny"}, "questions": {"dataset": "./questions.jsonl"}},
        "steps": [
            step("sft", "train.sft", learn, model="inputs.base", rows="inputs.questions"),
            step("tuned", "model.merge", {}, model="inputs.base", adapter="sft.adapter"),
            step("pairs", "data.sql", {"query": pairs}, rows="inputs.questions"),
            step("dpo", "train.dpo", prefer, model="tuned.model", rows="pairs.rows"),
        ],
        "outputs": {"policy": "dpo.adapter"},
    }


def test_all_steps_but_dpo_run_once_and_the_receipts_show_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "tiny")
    flows.questions(tmp_path, rows=12)
    files = [
        flows.policy(tmp_path, "team-a", "team-b"),
        flows.write(tmp_path, "gentle", post_training(0.1), "team-a"),
        flows.write(tmp_path, "firm", post_training(0.5), "team-b"),
    ]
    done = fmesh("run", *files, cwd=tmp_path, timeout_s=1000)
    assert done.returncode == 0, done.stderr
    book = answer("receipt", "--all", cwd=tmp_path)
    lines = [{line["step"]: line for line in r["lines"]} for r in book["receipts"]]
    uids = [r["uid"] for r in book["receipts"]]
    for name in BEFORE:
        one, other = lines[0][name], lines[1][name]
        shared = [r.get("hits", 0) + r.get("in_flight", 0) for r in (one, other)]
        assert sorted(shared) == [0, 1], name
        assert one.get("executed", 0) + other.get("executed", 0) == 1, name
        told = (other if shared[1] else one)["shared_with"]
        assert told == [uids[0] if shared[1] else uids[1]], name
        assert abs(one["paid_nanousd"] - other["paid_nanousd"]) <= 1, name
    for line in lines:
        assert line["dpo"]["executed"] == 1
        assert not line["dpo"].get("shared_with")
    paid = sum(r["paid_nanousd"] for r in book["receipts"])
    assert paid + book["fabric"]["fabric_nanousd"] == book["fabric"]["bill_nanousd"]
