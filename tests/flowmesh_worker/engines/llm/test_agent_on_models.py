"""``llm.agent`` on a model with random weights, whose completions have the form of calls."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.catalog.builtin.agent import AGENT
from flowmesh_core.identity.coerce import effective_params

sys.path.insert(0, str(Path(__file__).parent))

from jobs import job

pytestmark = [pytest.mark.slow, pytest.mark.model]

ENGINE = {"engine": "flowmesh_worker.engines.agent.engine:LlmAgent"}
DATA = {"books": [{"title": "Tides of Iron"}, {"title": "The Salt Road"}]}
QUESTIONS = ("the fox", "the dog", "the fox")


def action(*questions: str, **params: Any) -> dict[str, Any]:
    """Returns an action that answers questions with tools, its parameters as from the compiler."""
    given = {"prompt": "{{ q }}", "tools": ["calculator"], "maxTokens": 900, "seed": 7, **params}
    rows = [{"q": q} for q in questions]
    return {"rows": rows, "params": effective_params(AGENT, given), "data": DATA}


@pytest.fixture(scope="module")
def long_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a context for the tools' descriptions, in which each byte is a token."""
    folder = tmp_path_factory.mktemp("models") / "long"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    return folder


@pytest.fixture(scope="module")
def held(long_model: Path, drive: Any) -> Any:
    required = {"toolChoice": "required", "maxTurns": 3}
    cut = {**required, "tools": ["retrieve", "sql"], "maxTokens": 24}  # too few for any call
    return drive(
        job(
            long_model,
            [action(*QUESTIONS, **required), action("the dog", **required), action("x", **cut)],
            [action(*QUESTIONS, **required)],
            [action("x" * 3400, **required), action("x" * 5000, **required)],
            [action("the fox", toolParser="hermes")],
            **ENGINE,
        )
    )["batches"]


def calls_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for m in row["transcript"] for c in m.get("tool_calls", ())]


def test_constrained_turns_are_calls_and_the_last_one_is_an_answer(held: Any) -> None:
    rows = held[0][0]["rows"]
    for row in rows:
        assert row["turns"] in (2, 3)  # the first is a call, the last may be one no more
        assert row["finish_reason"] in ("answered", "length")
        assert isinstance(row["answer"], str)
        assert [c["name"] for c in calls_of(row)] == ["calculator"] * len(calls_of(row))
        assert row["transcript"][1]["tool_calls"][0]["arguments"].keys() == {"expression"}
        assert row["transcript"][2]["role"] == "tool"
        assert row["transcript"][2]["content"]
    assert held[0][0]["schema"]["transcript"] == "json"


def test_equal_rows_are_processed_once_with_the_same_result_in_any_batch(held: Any) -> None:
    fox, dog, again = held[0][0]["rows"]
    assert fox == again
    assert fox["transcript"] != dog["transcript"]
    assert held[0][1]["rows"] == [dog]
    assert held[1][0] == held[0][0] | {k: held[1][0][k] for k in ("began", "ended")}


def test_truncated_calls_are_reported_to_the_model_and_not_run(held: Any) -> None:
    [row] = held[0][2]["rows"]
    told = [m["content"] for m in row["transcript"] if m["role"] == "tool"]
    assert len(told) == 2
    assert all("no JSON object" in text for text in told)
    assert row["finish_reason"] == "length"


def test_a_conversation_that_outgrows_the_model_ends_with_a_reason(held: Any) -> None:
    grown, refused = held[2]
    [row] = grown["rows"]
    assert (row["finish_reason"], row["answer"]) == ("context", None)
    assert row["turns"] >= 1
    assert refused["kind"] == "bad-input"
    assert "row 1 of this chunk" in refused["message"]


def test_a_template_that_supports_tools_renders_them_itself(tool_templates: dict[str, Any]) -> None:
    assert (tool_templates["plain"], tool_templates["hermes"]) == (False, True)
    text = tool_templates["text"]
    assert text.startswith('<tools>{"type": "function", "function": {"name": "calculator"')
    assert text.endswith(
        '<|user|>1+1?<|assistant|><tool_call>{"name": "calculator", "arguments":'
        ' {"expression": "1+1"}}</tool_call><|tool|>it is two'
    )


def test_calls_are_read_by_a_parser_of_vllm(tool_parsers: dict[str, Any]) -> None:
    call = {"name": "calculator", "arguments": {"expression": "1+1"}}
    read, many, wrong, answer = tool_parsers["hermes"]
    assert (read["text"], read["calls"], read["answer"]) == ("I compute.", [call], None)
    assert many["problem"] == "9 calls at once; at most 8 are taken"
    assert wrong["answer"] == "<tool_call>calculator</tool_call>", "as vLLM's server answers it"
    assert answer["answer"] == "It is 2."
    both, _ = tool_parsers["pythonic"]
    assert [c["arguments"]["expression"] for c in both["calls"]] == ["1+1", "2+2"]
    assert tool_parsers["xlam"][0]["calls"] == [call]


def test_a_parser_that_is_unknown_or_of_other_models_is_refused(
    tool_parsers: dict[str, Any], held: Any
) -> None:
    assert "does not fit the model: Mistral parser" in tool_parsers["mistral"]
    assert (
        "no parser of tool calls 'qwen4'; toolParser is one of apertus, " in tool_parsers["qwen4"]
    )
    [untaught] = held[3]
    assert untaught["kind"] == "bad-input"
    assert "the model's chat template teaches them, and that has none" in untaught["message"]


def test_on_transformers_the_model_may_answer_without_a_call(long_model: Path, drive: Any) -> None:
    transformers = {"implementation": "transformers"}
    short = {"maxTokens": 8}
    [[free, single, refused]] = drive(
        job(
            long_model,
            [
                action(*QUESTIONS, **short),
                action("the dog", **short),
                action("x", toolChoice="required"),
            ],
            signature=transformers,
            **ENGINE,
        )
    )["batches"]
    fox, dog, again = free["rows"]
    assert (fox["turns"], fox["finish_reason"]) == (1, "length")
    assert fox["transcript"] == [
        {"role": "user", "content": "the fox"},
        {"role": "assistant", "content": fox["answer"]},
    ]
    assert fox == again
    assert single["rows"] == [dog]
    assert free["usage"][2] == 16
    assert "needs vLLM" in refused["message"]
