"""The same as on data engines (``test_sharing``), of a model that samples and one that embeds."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.test_sharing import (
    Tenants,
    assert_sharing_saves_work_and_changes_nothing,
    step,
)

pytestmark = [pytest.mark.nightly, pytest.mark.model]


def model_flow(tenant: int) -> dict[str, Any]:
    """Returns a workflow: two tenants generate alike, all embed alike, each has its own query."""
    query = f"select question, completion, {tenant} as tenant from rows order by all"
    model = {"model": "inputs.base", "rows": "inputs.questions"}
    sampling = {"samples": 2, "temperature": 0.8, "maxTokens": 6, "seed": 7 if tenant < 2 else 8}
    real = {"dtype": "float32", "implementation": "transformers"}
    generate = step("ask", "llm.generate", model, prompt="Q: {{ question }}\nA:", **sampling)
    generate["with"] |= real
    embed = step("embed", "llm.embed", model, column="question", dtype="float32")
    return {
        "inputs": {"base": {"model": "./tiny"}, "questions": {"dataset": "./questions.jsonl"}},
        "steps": [generate, embed, step("mine", "data.sql", {"rows": "ask.rows"}, query=query)],
        "outputs": {"ask": "ask.rows", "embed": "embed.rows", "mine": "mine.rows"},
    }


def test_three_tenants_on_a_model_share_work_and_get_the_same_results_as_alone(
    tiny_model: Path, tmp_path: Path
):
    shutil.copytree(tiny_model, tmp_path / "tiny")
    flows.questions(tmp_path, rows=10)
    # One of three generations and two of three embeddings: 3 fewer.
    assert_sharing_saves_work_and_changes_nothing(Tenants(tmp_path, model_flow), saved=3)
