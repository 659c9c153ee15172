"""The engine ``llm.openai``: rows of requests, compared with ``vllm run-batch``."""

from pathlib import Path
from typing import Any

import pytest
from tests.vllm_run_batch import said, vllm_run_batch

pytestmark = [pytest.mark.nightly, pytest.mark.model]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def row(number: int, url: str = CHAT, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "max_tokens": 8 + number % 7, "temperature": 0, **more}
    if url == CHAT:
        content = f"the fox {'jumps over ' * (number % 5)}the dog {number}"
        body = {"messages": [{"role": "user", "content": content}], **body}
    return {"url": url, "body": body}


GREEDY = [row(i) for i in range(24)]
WRONG = [
    row(0, priority=1),
    row(1, stream=True),
    row(2, "/v1/embeddings"),
    {"url": CHAT, "body": [1]},
    row(3, messages=[{"role": "user", "content": "x " * 600}]),
]
SAMPLED = [row(i, temperature=0.9, logprobs=True, top_logprobs=2) for i in range(4)]


@pytest.fixture(scope="module")
def answers(tiny_model: Path, drive: Any) -> list[list[dict[str, Any]]]:
    batches = [
        [{"rows": GREEDY[:12]}, {"rows": GREEDY[12:]}],
        [{"rows": [*WRONG, GREEDY[0]]}],
        [{"rows": SAMPLED}, {"rows": [row(0, COMPLETIONS, prompt="the fox", n=1)]}],
        [{"rows": [*SAMPLED[::-1], SAMPLED[0]]}],
    ]
    job = {
        "engine": "flowmesh_worker.engines.llm.openai:LlmOpenAi",
        "model": str(tiny_model),
        "batches": batches,
        "signature": {"dtype": "auto", "batchInvariant": True},
    }
    return list(drive(job)["batches"])


def responses(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [r["response"] for r in answer["rows"]]


def test_greedy_answers_are_those_of_vllm_run_batch(
    answers: Any, tiny_model: Path, tmp_path: Path
) -> None:
    lines = [{"custom_id": str(i), **given} for i, given in enumerate(GREEDY)]
    theirs = said(vllm_run_batch(tiny_model, lines, tmp_path))
    ours = [r for a in answers[0] for r in responses(a)]
    assert said({str(i): r["body"] for i, r in enumerate(ours)}) == theirs


def test_a_wrong_row_is_a_response_with_its_error_and_the_others_are_answered(answers: Any) -> None:
    [answer] = answers[1]
    *wrong, right = responses(answer)
    assert [r["status_code"] for r in wrong] == [400] * 5
    assert [r["body"]["error"]["param"] for r in wrong[:2]] == ["priority", "stream"]
    assert right == responses(answers[0][0])[0]
    assert answer["metrics"] == {"completed": 1, "failed": 5}


def without_logprobs(response: dict[str, Any]) -> dict[str, Any]:
    choices = [{**c, "logprobs": None} for c in response["body"]["choices"]]
    return {**response, "body": {**response["body"], "choices": choices}}


def first_logprob(response: dict[str, Any]) -> float:
    return float(response["body"]["choices"][0]["logprobs"]["content"][0]["logprob"])


def test_a_response_depends_on_its_request_alone(answers: Any) -> None:
    first, second = responses(answers[2][0]), responses(answers[3][0])
    expected = [*first[::-1], first[0]]
    assert list(map(without_logprobs, second)) == list(map(without_logprobs, expected))
    near = [pytest.approx(first_logprob(r), abs=1e-3) for r in expected]
    assert list(map(first_logprob, second)) == near
    body = first[0]["body"]
    assert (body["created"], body["model"], body["system_fingerprint"]) == (0, "m", None)
    assert body["id"].startswith("chatcmpl-")
    assert responses(answers[2][1])[0]["body"]["choices"][0]["text"]


def test_tokens_are_counted_once_for_equal_rows(answers: Any) -> None:
    usages = [r["body"]["usage"] for r in responses(answers[2][0])]
    total = sum(u["total_tokens"] for u in usages)
    assert answers[2][0]["usage"][0] == answers[3][0]["usage"][0] == total
