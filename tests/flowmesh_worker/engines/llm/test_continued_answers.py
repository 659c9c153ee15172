"""Answers of ``llm.openai`` are the same bytes where engines are killed in the middle."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conftest import HERE, program

pytestmark = [pytest.mark.nightly, pytest.mark.model]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOKENS = 96
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 40}}}
FORM = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}


def chat(number: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"the fox {'jumps ' * (number % 5)}{number}"}]
    return {"url": CHAT, "body": {"model": "m", "messages": messages, "max_tokens": TOKENS, **more}}


def completion(prompt: Any, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": prompt, "max_tokens": TOKENS, **more}
    return {"url": COMPLETIONS, "body": body}


CONTINUED = [
    *(chat(i, temperature=0) for i in range(6)),
    *(chat(i, temperature=0.9, top_p=0.95) for i in range(6, 12)),
    *(chat(i, seed=i) for i in range(12, 15)),
    *(chat(i, temperature=0.8, stop=["e", "fox j"]) for i in range(15, 18)),
    completion("the dog", temperature=0.7),
    completion("the dog", temperature=0, stop="the"),
]
ANEW = [
    chat(20, temperature=0.9, n=2),
    chat(21, temperature=0, frequency_penalty=1.5),
    chat(22, temperature=0.9, presence_penalty=1.5),
    chat(23, response_format=FORM),
    completion(["the fox", "the dog"], temperature=0.9),
]


@pytest.fixture(scope="module")
def runs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("continued")
    answer = folder / "answer.json"
    job = {
        "model": str(tiny_model),
        "rows": [*CONTINUED, *ANEW],
        "kills": [300, 600],
        "folder": str(folder),
        "answer": str(answer),
    }
    program(str(HERE / "continued_driver.py"), given=json.dumps(job))
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def test_answers_are_the_same_bytes_as_those_of_an_engine_that_lived(runs: Any) -> None:
    assert [part["killed"] for part in runs["parts"]] == [True, True, False]
    whole, last = runs["whole"]["answers"], runs["parts"][-1]["answers"]
    assert [a["status_code"] for a in whole] == [200] * len(whole)
    assert json.dumps(last) == json.dumps(whole)
    reasons = {a["body"]["choices"][0]["finish_reason"] for a in whole}
    assert reasons == {"stop", "length"}


def test_tokens_of_unfinished_requests_are_not_generated_again(runs: Any) -> None:
    def usage(rows: slice) -> int:
        answers = runs["whole"]["answers"][rows]
        return sum(a["body"]["usage"]["completion_tokens"] for a in answers)

    generated = sum(part["generated"] for part in runs["parts"])
    anew = usage(slice(len(CONTINUED), None))
    assert generated <= usage(slice(None)) + 2 * anew + 4 * len(CONTINUED)
    assert generated < 1.5 * runs["whole"]["generated"]
    later = [json.loads(line) for line in runs["parts"][1]["journal"].splitlines()[1:]]
    restored = sum(len(e[3]) for e in later if e[0] == "tokens" and e[2] == 0 and len(e[3]) > 4)
    assert restored >= 200
