"""OpenAI's requests on vLLM's own serving classes, beside requests of batch actions."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conftest import HERE, program

pytestmark = [pytest.mark.slow, pytest.mark.model]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
NEIGHBOURS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "greedy with a seed": {"temperature": 0, "seed": 5},
    "sampled": {"temperature": 0.7},
    "sampled with a seed": {"temperature": 0.7, "seed": -1},
    "four choices": {"n": 4, "temperature": 0.9},
    "log-probabilities": {"logprobs": True, "top_logprobs": 3, "temperature": 0},
    "schema": {
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    },
}


def chat(text: str = "the fox", way: str = "answer", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "path": CHAT,
        "way": way,
        "body": {"model": "m", "messages": messages, "max_tokens": 24, **more},
    }


def completion(**more: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": "the fox", "max_tokens": 12, "temperature": 0, **more}
    return {"path": COMPLETIONS, "body": body}


GROUPS: dict[str, Any] = {
    "alone": {"batch": True, "calls": []},
    **{
        f"beside {name}": {"batch": True, "calls": [chat(f"dog {i}", **more) for i in range(3)]}
        for name, more in NEIGHBOURS.items()
    },
    "beside cancelled streams": {
        "batch": True,
        "calls": [chat(f"dog {i}", "cancel", max_tokens=200) for i in range(3)],
    },
    "plain": {
        "calls": [
            chat(temperature=0),
            chat(temperature=0),
            chat(n=3, temperature=0.9),
            chat(temperature=0, logprobs=True, top_logprobs=2),
            chat(temperature=0, response_format=NEIGHBOURS["schema"]["response_format"]),
            completion(),
            completion(prompt=["the fox", "a dog"], logprobs=1),
        ]
    },
    "streams": {"calls": [chat(way="stream", temperature=0, stream_options=None)]},
    "errors": {
        "calls": [
            chat("x " * 600),
            chat(temperature=0, n=2),
            {"path": "/v1/embeddings", "body": {"model": "m", "input": "a"}},
            chat("x " * 600, "stream"),
            chat(top_p=0),
        ]
    },
}
GROUPS["without generators"] = {**GROUPS["beside greedy"], "without_generators": True}


def drive(model: Path, folder: Path, **job: Any) -> dict[str, Any]:
    answer = folder / "answer.json"
    given = {"model": str(model), "folder": str(folder), "answer": str(answer), **job}
    program(str(HERE / "openai_driver.py"), given=json.dumps(given))
    return dict(json.loads(answer.read_text()))


@pytest.fixture(scope="module")
def answers(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return drive(tiny_model, tmp_path_factory.mktemp("openai"), groups=GROUPS)


@pytest.mark.parametrize("name", [n for n in GROUPS if n.startswith("beside")])
def test_seeded_batch_rows_are_the_same_beside_requests_that_are(
    answers: dict[str, Any], name: str
) -> None:
    assert answers[name]["batch"] == answers["alone"]["batch"]
    for found in answers[name]["answers"]:
        assert found == "closed" or found[0] == 200, found


def test_without_generators_a_greedy_request_changes_the_batch(answers: dict[str, Any]) -> None:
    assert answers["without generators"]["batch"] != answers["alone"]["batch"]


def test_responses_have_openais_shape_and_the_names_that_the_caller_gives(
    answers: dict[str, Any],
) -> None:
    first, second, choices, logprobs, schema, text, two = answers["plain"]["answers"]
    assert [a[0] for a in answers["plain"]["answers"]] == [200] * 7
    assert first[1]["id"] == "chatcmpl-plain-0"
    assert first[1]["model"] == "served"
    message = first[1]["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["content"] == second[1]["choices"][0]["message"]["content"]
    usage = first[1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert len({c["message"]["content"] for c in choices[1]["choices"]}) == 3
    assert len(logprobs[1]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert json.loads(schema[1]["choices"][0]["message"]["content"]).keys() == {"n"}
    assert text[1]["choices"][0]["text"] == two[1]["choices"][0]["text"]


def test_a_stream_has_the_text_of_the_whole_response(answers: dict[str, Any]) -> None:
    [events] = answers["streams"]["answers"]
    assert events[-1] == "data: [DONE]\n\n"
    deltas = [json.loads(e.removeprefix("data: ")) for e in events[:-1]]
    text = "".join(d["choices"][0]["delta"].get("content") or "" for d in deltas)
    assert text == answers["plain"]["answers"][0][1]["choices"][0]["message"]["content"]


def test_requests_that_vllm_refuses_are_errors_of_their_own(answers: dict[str, Any]) -> None:
    long, greedy, embedding, stream, top_p = answers["errors"]["answers"]
    assert long[0] == 400
    assert "context" in long[1]["error"]["message"]
    assert greedy[0] == 400
    assert "greedy" in greedy[1]["error"]["message"]
    assert embedding[0] == 404
    assert "/v1/chat/completions" in embedding[1]["error"]["message"]
    assert "context" in json.loads(stream[0])["error"]["message"]
    assert top_p[0] == 400
