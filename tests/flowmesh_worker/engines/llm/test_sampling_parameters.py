"""Sampling parameters and chat rows on SmolLM2, in both implementations.

One process loads the model once in each. Every parameter changes a completion in its direction, and
greedy completions are the same in both.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conftest import program
from jobs import job

pytestmark = [pytest.mark.nightly, pytest.mark.model]

BUILD = """
import json, sys
from pathlib import Path
from flowmesh_worker.engines.models.builtin import build
target = Path(sys.argv[1])
build("smollm2-135m-instruct", target)
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(target)
ids = {text: tokenizer.encode(text, add_special_tokens=False) for text in (" apple", ",")}
print("FOUND" + json.dumps({"ids": ids, "template": tokenizer.chat_template}))
"""
SEA = "The sea, the sun, the"
LOOP = "apple, apple, apple, apple, apple,"
QUESTION = {"role": "user", "content": "What is 1+1?"}
OWN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
    "<|im_start|>assistant\\n{{ opening | default('') }}"
)


def greedy(**params: Any) -> dict[str, Any]:
    """Returns an action on the looping prompt, or on a chat."""
    given = {"temperature": 0, "maxTokens": 12, "seed": 7, **params}
    if "messages" not in given and "messagesFrom" not in given:
        given["prompt"] = params.get("prompt", LOOP)
    return {"rows": [{"chat": [QUESTION]}], "params": given}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    printed = program("-c", BUILD, str(folder))
    _, found, rest = printed.partition("FOUND")
    assert found, printed
    about: dict[str, Any] = json.loads(rest.splitlines()[0])
    return {"path": folder, **about}


@pytest.fixture(scope="module")
def actions(model: dict[str, Any]) -> dict[str, dict[str, Any]]:
    written = {"messages": [QUESTION]}
    return {
        "plain": greedy(),
        "repetition": greedy(repetitionPenalty=1.8),
        "sea": greedy(prompt=SEA),
        "presence": greedy(prompt=SEA, presencePenalty=2),
        "frequency": greedy(frequencyPenalty=2),
        "bad words": greedy(badWords=["apple"]),
        "stop token": greedy(stopTokenIds=model["ids"][" apple"]),
        "stop token included": greedy(stopTokenIds=model["ids"][" apple"], includeStop=True),
        "stop": greedy(stop=[", apple"]),
        "stop included": greedy(stop=[", apple"], includeStop=True),
        "stop late": greedy(stop=[","], minTokens=5),
        "chat": greedy(**written, maxTokens=20),
        "chat long": greedy(**written, maxTokens=20, minTokens=16),
        "chat endless": greedy(**written, maxTokens=20, ignoreEos=True),
        "chat from a column": greedy(messagesFrom="chat", maxTokens=20, transcript="so_far"),
        "own template": greedy(**written, maxTokens=20, chatTemplate=model["template"]),
        "reasoning": greedy(
            **written,
            chatTemplate=OWN,
            chatTemplateArgs={"opening": "<think>\n"},
            reasoning="thoughts",
        ),
        "sampled": greedy(temperature=1.0, frequencyPenalty=0.5),
        "sampled chat": greedy(**written, temperature=1.0),
        "sampled chat from a column": greedy(messagesFrom="chat", temperature=1.0),
        "n-gram": greedy(noRepeatNgram=2),
        "too long": greedy(minTokens=8_190, maxTokens=8_190),
    }


@pytest.fixture(scope="module")
def found(
    model: dict[str, Any], actions: dict[str, dict[str, Any]], drive: Any
) -> dict[str, dict[str, Any]]:
    """Returns the answers by implementation and by name."""
    together = list(actions.values())
    alone = [[actions[name]] for name in ("repetition", "presence", "sampled")]
    free = {"implementation": "transformers", "batchInvariant": False}
    jobs = [
        job(model["path"], together, *alone),
        job(model["path"], together, signature=free),
    ]
    answers = drive({"jobs": jobs})["jobs"]
    by_name = [dict(zip(actions, a["batches"][0], strict=True)) for a in answers]
    singles = dict(
        zip(("repetition", "presence", "sampled"), answers[0]["batches"][1:], strict=True)
    )
    return {"vllm": by_name[0], "transformers": by_name[1], "alone": singles}


def row(found: dict[str, Any], name: str) -> dict[str, Any]:
    answer = found[name]
    assert "rows" in answer, answer
    (only,) = answer["rows"]
    return dict(only)


def text(found: dict[str, Any], name: str) -> str:
    return str(row(found, name)["completion"])


def repeats(words: str) -> int:
    return words.count("apple")


BOTH = pytest.mark.parametrize("library", ["vllm", "transformers"])


@BOTH
def test_penalties_and_bad_words_make_words_rarer(found: dict[str, Any], library: str) -> None:
    here = found[library]
    assert repeats(text(here, "plain")) >= 4
    for name in ("repetition", "frequency"):
        assert repeats(text(here, name)) < repeats(text(here, "plain")), name
    assert text(here, "presence").count("stars") < text(here, "sea").count("stars")
    assert "apple" not in text(here, "bad words")


@BOTH
def test_stops_end_a_completion_and_are_part_of_it_where_wanted(
    found: dict[str, Any], library: str
) -> None:
    here = found[library]
    assert text(here, "plain").startswith(" apple, apple")
    assert text(here, "stop") == " apple"
    assert text(here, "stop included") == " apple, apple"
    assert text(here, "stop token") == ""
    assert text(here, "stop token included") == " apple"
    assert {row(here, n)["finish_reason"] for n in ("stop", "stop token")} == {"stop"}
    assert here["stop late"]["usage"][2] > 5


@BOTH
def test_a_completion_has_its_least_length_and_goes_on_after_its_end(
    found: dict[str, Any], library: str
) -> None:
    here = found[library]
    assert row(here, "chat")["finish_reason"] == "stop"
    assert here["chat"]["usage"][2] < 16 <= here["chat long"]["usage"][2]
    assert row(here, "chat endless")["finish_reason"] == "length"
    assert text(here, "chat endless").startswith(text(here, "chat"))
    assert here["too long"]["kind"] == "bad-input"
    assert "with minTokens: 8,190 more than the 8,192" in here["too long"]["message"]


@BOTH
def test_a_chat_by_columns_and_from_a_column_gives_equal_tokens_and_completions(
    found: dict[str, Any], library: str
) -> None:
    here = found[library]
    for one, other in (
        ("chat", "chat from a column"),
        ("sampled chat", "sampled chat from a column"),
    ):
        assert text(here, one) == text(here, other)
        assert here[one]["usage"] == here[other]["usage"]
    answer = {"role": "assistant", "content": text(here, "chat")}
    assert row(here, "chat from a column")["so_far"] == [QUESTION, answer]
    assert here["chat from a column"]["schema"]["so_far"] == "json"


@BOTH
def test_the_models_own_template_given_as_a_text_gives_the_same_tokens(
    found: dict[str, Any], library: str
) -> None:
    here = found[library]
    assert here["own template"]["usage"] == here["chat"]["usage"]
    assert text(here, "own template") == text(here, "chat")


@BOTH
def test_what_a_template_opens_as_reasoning_is_a_column_of_its_own(
    found: dict[str, Any], library: str
) -> None:
    thought = row(found[library], "reasoning")
    assert thought["thoughts"]
    assert thought["completion"] == ""


def test_only_transformers_leaves_out_sequences_that_were_there(found: dict[str, Any]) -> None:
    assert repeats(text(found["transformers"], "n-gram")) < 2
    assert found["vllm"]["n-gram"]["kind"] == "bad-input"
    assert "set with.implementation: transformers" in found["vllm"]["n-gram"]["remedy"]


def test_greedy_completions_with_penalties_agree_between_implementations(
    found: dict[str, Any], actions: dict[str, dict[str, Any]]
) -> None:
    shared = [n for n in actions if n not in ("n-gram", "too long") and "sampled" not in n]
    here, there = ({n: text(found[x], n) for n in shared} for x in ("vllm", "transformers"))
    assert here == there


def test_completions_with_penalties_do_not_depend_on_the_batch(found: dict[str, Any]) -> None:
    for name, (answer,) in found["alone"].items():
        assert answer["rows"] == found["vllm"][name]["rows"], name
