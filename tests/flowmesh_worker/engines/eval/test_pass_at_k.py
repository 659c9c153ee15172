"""`eval.pass-at-k`, the engine alone."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flowmesh_worker.engines.eval import scoring

from flowmesh_worker.engines.eval.intervals import wilson_of_means
from flowmesh_worker.engines.eval.pass_at_k import PassAtK, pass_at_k

NAME = "eval.pass-at-k"


@given(st.integers(1, 9), st.data())
def test_the_estimate_is_the_share_of_draws_of_k_that_hold_a_pass(
    samples: int, data: st.DataObject
) -> None:
    passed, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    draws = list(combinations([True] * passed + [False] * (samples - passed), k))
    wanted = sum(map(any, draws)) / len(draws)
    assert pass_at_k(samples, passed, k) == pytest.approx(wanted, abs=1e-12)


async def run(rows: list[dict[str, Any]], **params: Any) -> dict[str, Any]:
    return await scoring.run(PassAtK(), NAME, {"rows": rows}, **params)


async def test_problems_are_scored_and_their_mean_has_an_interval() -> None:
    rows = [{"set": 1, "q": q, "right": r} for q in "xy" for r in (True, False, False, False)]
    rows += [{"set": 2, "q": "x", "right": False}] * 4
    done = await run(rows, problem=["set", "q"], correct="right", k=[4, 1])
    assert done["rows"].rows == [
        {"set": 1, "q": "x", "samples": 4, "passed": 1, "pass_at_1": 0.25, "pass_at_4": 1.0},
        {"set": 1, "q": "y", "samples": 4, "passed": 1, "pass_at_1": 0.25, "pass_at_4": 1.0},
        {"set": 2, "q": "x", "samples": 4, "passed": 0, "pass_at_1": 0.0, "pass_at_4": 0.0},
    ]
    values = dict(done["metrics"].values)
    assert (values["problems"], values["samples"]) == (3, 12)
    assert values["pass_at_1"] == pytest.approx(1 / 6)
    assert values["pass_at_4"] == pytest.approx(2 / 3)
    low, high = wilson_of_means([1.0, 1.0, 0.0], 3, 0.95)
    assert (values["pass_at_4_low"], values["pass_at_4_high"]) == (low, high)


async def test_a_completion_passes_if_every_check_passes() -> None:
    rows = [{"q": "2 + 2", "t": "4", "said": s} for s in ("so 4", "It is 4.", "5", None)]
    judge = [{"name": "number-equals", "target": "t"}, {"name": "matches", "pattern": "^It"}]
    one = await run(rows, problem=["q"], judge=judge[:1], completion="said")
    assert one["metrics"].values["pass_at_1"] == 0.5
    twice = [{"name": "matches", "pattern": p} for p in ("5", "4")]
    none = await run(rows, problem=["q"], judge=twice, completion="said")
    assert none["metrics"].values["pass_at_1"] == 0
    both = await run(rows, problem=["q"], judge=judge, completion="said")
    assert both["metrics"].values["pass_at_1"] == 0.25


async def test_no_samples_give_the_interval_from_zero_to_one() -> None:
    values = (await run([], problem=["q"], correct="right"))["metrics"].values
    assert (values["pass_at_1_low"], values["pass_at_1_high"], values["problems"]) == (0, 1, 0)
    assert values["pass_at_1"] is None


@pytest.mark.parametrize(
    ("rows", "params", "said"),
    [
        ([{"q": 1}], {"correct": "right"}, "no column 'right'"),
        ([{"q": 1, "right": 1}], {"correct": "right"}, "row 1: column 'right' has 1"),
        ([{"q": 1, "right": True}], {"correct": "right", "k": [0]}, "with.k is [0]"),
        ([{"q": 1, "right": True}], {"correct": "right", "problem": []}, "with.problem is empty"),
        (
            [{"q": q, "right": True} for q in (1, 1, 2, 3, 4, 5)],
            {"correct": "right", "k": [1, 2]},
            "pass@2 needs 2 samples of every problem: {'q': 2} has 1; {'q': 3} has 1; {'q': 4} has"
            " 1; and 1 more problems",
        ),
        (
            [{"q": 1, "completion": "4", "t": "none"}],
            {"judge": [{"name": "number-equals", "target": "t"}]},
            "row 1: number-equals has no target",
        ),
        (
            [{"q": 1, "completion": "4"}],
            {"judge": [{"name": "length-at-most", "tokens": 4}]},
            "cannot count tokens",
        ),
    ],
)
async def test_rows_that_allow_no_estimate_are_refused(
    rows: list[dict[str, Any]], params: dict[str, Any], said: str
) -> None:
    failure = await scoring.refused(PassAtK(), NAME, {"rows": rows}, **{"problem": ["q"]} | params)
    assert said in f"{failure.message}; {failure.remedy}"
