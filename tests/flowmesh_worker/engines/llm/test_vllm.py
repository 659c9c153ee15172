"""``llm.generate`` on vLLM: all tests share one engine process, as in a worker."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs import PROMPTS, action, completions, job, mixed

pytestmark = [pytest.mark.slow, pytest.mark.model]

LONG = [f"{i} " + "the quick brown fox " * 80 for i in range(16)]

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
UNHELD = {"type": "string", "enum": ["ab", "cd"], "maxLength": 1}
"""The grammar knows no length beside an enum."""


@pytest.fixture(scope="module")
def answers(tiny_model: Path, drive: Any) -> dict[str, Any]:
    return drive(
        job(
            tiny_model,
            [action("fox", "dog", "fox", samples=3, temperature=0.9)],
            mixed(PROMPTS),
            *[[one] for one in mixed(PROMPTS)],
            mixed(PROMPTS)[::-1],
            [
                action("good", temperature=0.9),
                action("x", prompt="{{ missing }}"),
                action("y" * 600),
                action("z", jsonSchema={"type": "no such type"}),
                action("json", jsonSchema=SCHEMA, maxTokens=40),
                action("chat", messages=[{"role": "user", "content": "{{ p }}"}]),
                action("long", maxTokens=400, _cancel_after_tokens=16),
                {"rows": [], "params": {"prompt": "a"}},
                action("t", _adapter="/nowhere"),
                action("json", jsonSchema=UNHELD, maxTokens=40, temperature=0.9, samples=8),
                action("json", jsonSchema=SCHEMA, maxTokens=3),
            ],
            [action("good", temperature=0.9)],
            [action("fox", temperature=0.9, maxTokens=200)],
            [action("fox", temperature=0.9, maxTokens=200, stop=["ow"])],
            [action(*LONG, temperature=0.9)],
            [action(LONG[-1], temperature=0.9)],
            [action("b"), action("c")],
            kill_core_before=33,
        )
    )


@pytest.fixture(scope="module")
def others(tiny_model: Path, drive: Any) -> list[dict[str, Any]]:
    """Jobs without a vLLM engine: a refused one, and the greedy prompts on transformers."""
    bfloat16 = job(tiny_model, signature={"dtype": "bfloat16"})
    there = job(tiny_model, mixed(PROMPTS)[::5], signature={"implementation": "transformers"})
    return list(drive({"jobs": [bfloat16, there]})["jobs"])


def test_vllm_loads_reports_its_capacity_and_prints_no_warning(answers: dict[str, Any]) -> None:
    assert answers["capacity"] == 64
    assert "WARNING" not in answers["printed"]
    assert "Warning: " not in answers["printed"].replace("Warning: NUMA binding", "")


def test_rows_pass_through_in_row_order_then_sample_order(answers: dict[str, Any]) -> None:
    [[answer]] = answers["batches"][:1]
    rows = answer["rows"]
    assert [(r["p"], r["sample"]) for r in rows] == [
        (p, j) for p in ("fox", "dog", "fox") for j in range(3)
    ]
    assert rows[0].keys() == {"p", "completion", "finish_reason", "sample"}
    assert answer["schema"]["sample"] == "int"
    assert len({r["completion"] for r in rows[:3]}) == 3


def test_equal_rows_give_equal_samples_and_are_drawn_once(answers: dict[str, Any]) -> None:
    [[answer]] = answers["batches"][:1]
    drawn = [r["completion"] for r in answer["rows"]]
    assert drawn[:3] == drawn[6:]
    _, tokens_in, tokens_out = answer["usage"]
    assert tokens_out == 6 * 16
    assert answer["progress"] == [[96, 96, "tokens"]]
    assert 6 <= tokens_in < 30


def test_a_mixed_batch_gives_the_same_results_as_each_request_alone(
    answers: dict[str, Any],
) -> None:
    together = completions(answers["batches"][1])
    alone = [completions(b)[0] for b in answers["batches"][2:26]]
    backwards = completions(answers["batches"][26])[::-1]
    assert len(set(together)) == 24
    assert together == alone
    assert together == backwards


def test_one_bad_action_never_hurts_the_others_of_its_batch(answers: dict[str, Any]) -> None:
    good, missing, too_long, bad_schema, *_ = answers["batches"][27]
    assert completions([good]) == completions(answers["batches"][28])
    assert missing["kind"] == "bad-input"
    assert "'missing' is undefined" in missing["message"]
    assert too_long["kind"] == "bad-input"
    assert "the model reads 512" in too_long["message"]
    assert bad_schema["kind"] == "bad-input", bad_schema
    assert "jsonSchema" in bad_schema["remedy"]


def test_a_schema_constrains_the_output_against_the_models_preference(
    answers: dict[str, Any],
) -> None:
    import json

    guided = answers["batches"][27][4]
    assert json.loads(completions([guided])[0]).keys() == {"n"}
    assert guided["rows"][0]["finish_reason"] == "stop"


def test_a_completion_that_the_grammar_does_not_constrain_or_truncates_fails_its_action(
    answers: dict[str, Any],
) -> None:
    unheld, cut = answers["batches"][27][9:11]
    assert unheld["kind"] == cut["kind"] == "bad-input"
    assert "does not satisfy with.jsonSchema: at $" in unheld["message"]
    assert "is too long" in unheld["message"]
    assert "cut at with.maxTokens" in cut["message"]
    assert cut["detail"]


def test_a_chat_goes_through_the_models_own_template(answers: dict[str, Any]) -> None:
    chat = answers["batches"][27][5]
    assert chat["usage"][1] > len("chat")
    assert chat["rows"][0]["p"] == "chat"


def test_a_cancelled_action_stops_and_an_empty_one_keeps_its_columns(
    answers: dict[str, Any],
) -> None:
    cancelled, empty, adapted = answers["batches"][27][6:9]
    assert cancelled == {"kind": "cancelled"}
    assert empty["rows"] == []
    assert empty["schema"] == {"completion": "string", "finish_reason": "string", "sample": "int"}
    assert adapted["kind"] == "unplaceable"


def test_a_stop_string_cuts_the_same_text_before_it(answers: dict[str, Any]) -> None:
    [whole], [cut] = answers["batches"][29:31]
    full, short = whole["rows"][0]["completion"], cut["rows"][0]
    assert "ow" in full, "choose a stop string that this model says"
    assert short["completion"] == full[: full.index("ow")]
    assert short["finish_reason"] == "stop"


def test_prompts_beyond_one_step_break_neither_the_engine_nor_the_seeds(
    answers: dict[str, Any],
) -> None:
    [many], [one] = answers["batches"][31:33]
    assert many["usage"][1] > 2048, "more than one step reads"
    assert completions([many])[-1:] == completions([one])


def test_greedy_agrees_with_transformers(
    answers: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    here, there = completions(answers["batches"][1])[::5], completions(others[1]["batches"][0])
    # vLLM leaves out a character whose bytes are not all there at the end.
    assert [t.rstrip("\ufffd") for t in here] == [t.rstrip("\ufffd") for t in there]


def test_bfloat16_on_a_cpu_is_refused_unless_batch_invariance_is_off(
    others: list[dict[str, Any]],
) -> None:
    refused = others[0]["load"]
    assert refused["kind"] == "unplaceable"
    assert "with.dtype: float32, or with.batchInvariant: false" in refused["remedy"]


def test_a_lost_engine_core_breaks_the_host_and_every_action_reports_it(
    answers: dict[str, Any],
) -> None:
    assert [a["kind"] for a in answers["batches"][33]] == ["host-crashed", "host-crashed"]
