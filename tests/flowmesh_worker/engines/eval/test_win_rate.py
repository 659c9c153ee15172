"""`eval.win-rate`, the engine alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.flowmesh_worker.engines.eval import scoring

from flowmesh_worker.engines.eval.intervals import wilson
from flowmesh_worker.engines.eval.win_rate import WinRate

NAME = "eval.win-rate"


async def metrics(rows: list[dict[str, Any]], **params: Any) -> dict[str, Any]:
    done = await scoring.run(WinRate(), NAME, {"rows": rows}, **params)
    return dict(done["metrics"].values)


async def refused(rows: list[dict[str, Any]], **params: Any) -> str:
    failure = await scoring.refused(WinRate(), NAME, {"rows": rows}, **params)
    return f"{failure.message}; {failure.remedy}"


async def test_ties_count_half_and_are_left_out_of_the_sign_test() -> None:
    rows = [{"v": v} for v in "aaaaab"] + [{"v": "tie"}] * 2
    low, high = wilson(0.75, 8, 0.95)
    assert await metrics(rows, verdict="v") == {
        "win_rate": 0.75,
        "win_rate_low": low,
        "win_rate_high": high,
        "wins": 5,
        "losses": 1,
        "ties": 2,
        "count": 8,
        "p_value": pytest.approx(binomtest(5, 6).pvalue),
        "unparsed": 0,
    }


async def test_verdicts_are_read_despite_surrounding_text() -> None:
    rows = [{"v": "[[ONE]]"}, {"v": "two."}, {"v": " One"}, {"v": "both are bad"}, {"v": None}]
    found = await metrics(rows, verdict="v", labelA="one", labelB="two")
    assert (found["wins"], found["losses"], found["ties"], found["unparsed"]) == (2, 1, 2, 2)


async def test_scores_are_compared() -> None:
    rows = [{"x": 1, "y": 0.5}, {"x": 1, "y": 1.0}, {"x": 0, "y": 3.0}]
    done = await scoring.run(WinRate(), NAME, {"rows": rows}, scoreA="x", scoreB="y")
    assert [r["outcome"] for r in done["rows"].rows] == [1, 0.5, 0]
    assert done["metrics"].values["win_rate"] == 0.5


async def test_both_orders_weigh_the_same_however_many_rows_each_has() -> None:
    rows = [{"v": "a", "first": "a"}] * 9 + [{"v": "b", "first": "b"}]
    found = await metrics(rows, verdict="v", first="first")
    assert (found["win_rate"], found["win_rate_first"], found["win_rate_second"]) == (0.5, 1, 0)
    low, _ = wilson(0.5, 4 / (1 / 9 + 1), 0.95)
    assert found["win_rate_low"] == pytest.approx(low)


async def test_a_judge_that_always_names_the_first_position_prefers_neither_side() -> None:
    rows = [{"q": q, "v": "a", "first": f} for q in range(5) for f in "ab"]
    by_place = {"verdict": "v", "first": "first", "verdictNames": "places"}
    found = await metrics(rows, **by_place, pair=["q"])
    assert (found["ties"], found["count"], found["win_rate"], found["p_value"]) == (5, 5, 0.5, 1)
    assert (found["win_rate_first"], found["win_rate_second"]) == (1, 0)
    assert (await metrics(rows, **by_place))["wins"] == 5


async def test_rows_of_a_pair_count_as_one_comparison() -> None:
    rows = [{"q": "x", "v": v} for v in ("a", "a", "b")] + [{"q": "y", "v": "b"}]
    done = await scoring.run(WinRate(), NAME, {"rows": rows}, verdict="v", pair=["q"])
    assert done["rows"].rows == [{"q": "x", "outcome": 1}, {"q": "y", "outcome": 0}]
    assert done["metrics"].values["count"] == 2


@given(st.lists(st.sampled_from(["a", "b", "tie"]), max_size=30))
async def test_swapping_the_names_mirrors_the_result(verdicts: list[str]) -> None:
    rows = [{"v": v} for v in verdicts]
    one = await metrics(rows, verdict="v")
    other = await metrics(rows, verdict="v", labelA="b", labelB="a")
    assert (one["wins"], one["losses"]) == (other["losses"], other["wins"])
    assert one["p_value"] == other["p_value"]
    if rows:
        assert one["win_rate"] == pytest.approx(1 - other["win_rate"])
        assert one["win_rate_low"] == pytest.approx(1 - other["win_rate_high"])


@pytest.mark.parametrize(
    ("rows", "params", "said"),
    [
        ([{"x": "a"}], {"verdict": "v"}, "no column 'v'"),
        ([{"v": "a"}], {"verdict": "v", "labelB": "A"}, "three different labels"),
        ([{"x": 1}], {"scoreA": "x"}, "name both columns"),
        ([{"x": 1, "y": None}], {"scoreA": "x", "scoreB": "y"}, "row 1: column 'y' has None"),
        ([{"v": "a"}], {"verdict": "v", "verdictNames": "places"}, "with.first"),
        ([{"v": "a", "f": "left"}], {"verdict": "v", "first": "f"}, "has 'left'"),
        ([{"v": "a", "f": "a"}], {"verdict": "v", "first": "f"}, "with a first only"),
        (
            [{"v": "a", "f": "a", "q": 1}, {"v": "a", "f": "b", "q": 2}],
            {"verdict": "v", "first": "f", "pair": ["q"]},
            "the pair {'q': 1} was judged with a first only",
        ),
    ],
)
async def test_rows_that_cannot_be_compared_are_refused(
    rows: list[dict[str, Any]], params: dict[str, Any], said: str
) -> None:
    assert said in await refused(rows, **params)
