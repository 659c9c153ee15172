"""`eval.multiple-choice`, the engine alone."""

from typing import Any

import pytest
from tests.flowmesh_worker.engines.eval import scoring

from flowmesh_worker.engines.eval.intervals import wilson
from flowmesh_worker.engines.eval.multiple_choice import MultipleChoice

NAME = "eval.multiple-choice"
TREES = {"choices": ["oak", "elm", "yew tree"]}


async def run(rows: list[dict[str, Any]], **params: Any) -> dict[str, Any]:
    given = {"choices": "choices", "answer": "answer", "answerIs": "index"} | params
    return await scoring.run(MultipleChoice(), NAME, {"rows": rows}, **given)


async def refused(rows: list[dict[str, Any]], **params: Any) -> str:
    given = {"choices": "choices", "answer": "answer", "answerIs": "index"} | params
    failure = await scoring.refused(MultipleChoice(), NAME, {"rows": rows}, **given)
    return f"{failure.message}; {failure.remedy}"


async def test_the_greatest_log_probability_is_the_prediction_and_the_first_of_equals() -> None:
    rows = [
        {**TREES, "answer": 1, "lp": [-2.0, -1.0, -3.0]},
        {**TREES, "answer": 1, "lp": [-1.0, -1.0, -3.0]},
    ]
    done = await run(rows, logprobs="lp")
    assert [r["predicted"] for r in done["rows"].rows] == ["elm", "oak"]
    assert [r["correct"] for r in done["rows"].rows] == [True, False]
    low, high = wilson(0.5, 2, 0.95)
    assert done["metrics"].values == {
        "accuracy": 0.5,
        "accuracy_low": low,
        "accuracy_high": high,
        "count": 2,
        "unparsed": 0,
    }


async def test_log_probabilities_per_character_favour_no_short_choice() -> None:
    rows = [{**TREES, "answer": 2, "lp": [-3.0, -4.0, -4.0]}]
    assert (await run(rows, logprobs="lp"))["metrics"].values["accuracy"] == 0
    done = await run(rows, logprobs="lp", perCharacter=True)
    assert done["metrics"].values["accuracy"] == 1


@pytest.mark.parametrize(("kind", "answer"), [("index", 1), ("letter", "B"), ("text", "elm")])
async def test_an_answer_is_an_index_a_letter_or_a_text(kind: str, answer: Any) -> None:
    rows = [{**TREES, "answer": answer, "said": said} for said in ("B", "oak", "no idea", None)]
    done = await run(rows, completion="said", answerIs=kind)
    values = done["metrics"].values
    assert (values["accuracy"], values["unparsed"]) == (0.25, 2)
    assert [r["predicted"] for r in done["rows"].rows] == ["elm", "oak", None, None]


async def test_empty_rows_have_the_interval_from_zero_to_one() -> None:
    values = (await run([], completion="said"))["metrics"].values
    assert (values["accuracy_low"], values["accuracy_high"], values["count"]) == (0, 1, 0)
    assert values["accuracy"] is None


@pytest.mark.parametrize(
    ("row", "params", "said"),
    [
        ({"answer": 1, "said": "x"}, {"completion": "said"}, "no column 'choices'"),
        ({"choices": ["a"], "answer": 0, "said": "x"}, {"completion": "said"}, "2 to 26 choices"),
        ({"choices": ["a", "a"], "answer": 0, "said": ""}, {"completion": "said"}, "all different"),
        (
            {"choices": "a, b", "answer": 0, "said": ""},
            {"completion": "said"},
            "expected a list of texts",
        ),
        (
            {**TREES, "answer": 3, "said": ""},
            {"completion": "said"},
            "expected the index of one of its 3 choices",
        ),
        ({**TREES, "answer": -1, "said": ""}, {"completion": "said"}, "expected the index"),
        (
            {**TREES, "answer": "D", "said": ""},
            {"completion": "said", "answerIs": "letter"},
            "expected the letter",
        ),
        ({**TREES, "answer": "fir", "said": ""}, {"completion": "said", "answerIs": "text"}, "fir"),
        ({**TREES, "answer": 0, "lp": [0.5, 1.5]}, {"logprobs": "lp"}, "2 numbers for 3 choices"),
        ({**TREES, "answer": 0, "lp": None}, {"logprobs": "lp"}, "row 1: column 'lp' has None"),
    ],
)
async def test_an_unscorable_row_is_refused_with_its_number(
    row: dict[str, Any], params: dict[str, Any], said: str
) -> None:
    assert said in await refused([row], **params)
