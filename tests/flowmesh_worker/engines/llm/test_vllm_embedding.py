"""``llm.embed`` and ``/v1/embeddings`` on a pooling engine of vLLM."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs import job

pytestmark = [pytest.mark.slow, pytest.mark.model]

TRANSFORMERS = {"implementation": "transformers"}
TEXTS = ("the fox", "a lazy dog", "the fox", "jumps over")


def embed(*texts: str, **params: Any) -> dict[str, Any]:
    return {"rows": [{"t": t} for t in texts], "params": {"column": "t", **params}}


def request(given: Any, **more: Any) -> dict[str, Any]:
    return {"url": "/v1/embeddings", "body": {"model": "m", "input": given, **more}}


@pytest.fixture(scope="module")
def jobs(tiny_model: Path, drive: Any) -> list[dict[str, Any]]:
    batch = [embed(*TEXTS), embed("the fox", normalize=False), embed("x " * 600)]
    engine = "flowmesh_worker.engines.llm.embed:LlmEmbed"
    signature = {"dtype": "float32", "implementation": "vllm", "pooling": "mean"}
    requests = {
        "rows": [
            request("the fox"),
            request(["the fox", "a lazy dog"]),
            request("the fox", encoding_format="base64"),
            request("the fox", dimensions=8),
            request("x " * 600),
            {"url": "/v1/completions", "body": {"model": "m", "prompt": "the fox"}},
        ]
    }
    answering = {"dtype": "float32", "task": "embed"}
    openai = "flowmesh_worker.engines.llm.openai:LlmOpenAi"
    given = [
        job(tiny_model, batch, engine=engine, signature=signature),
        job(tiny_model, [requests], engine=openai, signature=answering),
        job(tiny_model, batch[:2], engine=engine, signature=TRANSFORMERS),
        job(tiny_model, batch, engine=engine, signature={**TRANSFORMERS, "pooling": "auto"}),
    ]
    return list(drive({"jobs": given})["jobs"])


def vectors(answer: dict[str, Any]) -> list[list[float]]:
    return [row["embedding"] for row in answer["rows"]]


def test_vectors_are_those_of_transformers(jobs: list[dict[str, Any]]) -> None:
    many, raw, _ = jobs[0]["batches"][0]
    expected, expected_raw = jobs[2]["batches"][0]
    assert len(vectors(many)) == len(TEXTS)
    for found, wanted in zip(vectors(many), vectors(expected), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)
    assert vectors(raw)[0] == pytest.approx(vectors(expected_raw)[0], rel=1e-3, abs=1e-4)
    assert many["usage"] == expected["usage"]
    assert many["progress"][-1][:2] == [len(TEXTS), len(TEXTS)]


def test_a_text_over_the_context_fails_its_own_action(jobs: list[dict[str, Any]]) -> None:
    assert jobs[0]["batches"][0][2]["kind"] == "bad-input"


def test_the_models_own_pooling_needs_vllm(jobs: list[dict[str, Any]]) -> None:
    assert jobs[3]["load"]["kind"] == "unplaceable"
    assert "implementation: vllm" in jobs[3]["load"]["remedy"]


def test_requests_are_answered_in_openais_shape(jobs: list[dict[str, Any]]) -> None:
    [answer] = jobs[1]["batches"][0]
    one, two, base64, shorter, long, other = (r["response"] for r in answer["rows"])
    assert [r["status_code"] for r in (one, two, base64)] == [200] * 3
    [item] = one["body"]["data"]
    assert (item["object"], item["index"]) == ("embedding", 0)
    assert math.hypot(*item["embedding"]) == pytest.approx(1, rel=1e-5)
    assert two["body"]["data"][0]["embedding"] == pytest.approx(item["embedding"], abs=1e-4)
    assert isinstance(base64["body"]["data"][0]["embedding"], str)
    usage = one["body"]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] > 0
    assert one["body"]["created"] == 0
    assert "system_fingerprint" not in one["body"]
    assert shorter["status_code"] == 400
    assert "dimensions" in shorter["body"]["error"]["message"]
    assert long["status_code"] == 400
    assert other["status_code"] == 404
    assert answer["metrics"] == {"completed": 3, "failed": 3}
