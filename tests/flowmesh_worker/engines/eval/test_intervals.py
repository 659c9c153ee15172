"""Confidence intervals and the sign test, compared with scipy and checked by simulation."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from flowmesh_worker.engines.eval.intervals import sign_test, wilson, wilson_of_means

CONFIDENCE = st.sampled_from([0.5, 0.8, 0.95, 0.99])


@given(st.integers(1, 5000), st.floats(0, 1), CONFIDENCE)
def test_the_interval_equals_that_of_scipy(count: int, part: float, confidence: float) -> None:
    successes = round(part * count)
    wanted = binomtest(successes, count).proportion_ci(confidence, method="wilson")
    found = wilson(successes / count, count, confidence)
    assert found == pytest.approx((wanted.low, wanted.high), abs=1e-9)


@given(st.floats(0, 1), st.floats(0.1, 1e6), CONFIDENCE)
def test_the_interval_contains_the_share_and_stays_between_zero_and_one(
    share: float, count: float, confidence: float
) -> None:
    low, high = wilson(share, count, confidence)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_the_sign_test_equals_that_of_scipy(one: int, other: int) -> None:
    wanted = binomtest(one, one + other, 0.5).pvalue if one + other else 1.0
    assert sign_test(one, other) == pytest.approx(wanted, rel=1e-9, abs=1e-200)


def test_the_sign_test_of_very_many_trials_is_quick_and_right() -> None:
    wanted = binomtest(100_300, 200_000, 0.5).pvalue
    assert sign_test(100_300, 99_700) == pytest.approx(wanted, rel=1e-6)


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_problems_with_binary_outcomes_give_the_plain_interval(right: list[bool]) -> None:
    means = [float(r) for r in right]
    share = sum(means) / len(means)
    found = wilson_of_means(means, len(means), 0.95)
    assert found == pytest.approx(wilson(share, len(means), 0.95))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(1, 1000))
def test_the_interval_of_a_mean_of_shares_is_no_narrower_than_that_of_its_trials(
    means: list[float], trials: int
) -> None:
    share = sum(means) / len(means)
    low, high = wilson_of_means(means, trials, 0.95)
    surest = wilson(share, max(trials, len(means)), 0.95)
    widest = wilson(share, len(means), 0.95)
    assert low <= surest[0] + 1e-9
    assert high >= surest[1] - 1e-9
    assert high - low <= widest[1] - widest[0] + 1e-9


@pytest.mark.parametrize(("alpha", "beta"), [(2, 2), (0.3, 0.3), (1, 8), (20, 20)])
def test_nineteen_of_twenty_intervals_over_problems_contain_the_true_value(
    alpha: float, beta: float
) -> None:
    draw = random.Random(7)
    problems, samples, runs, held = 40, 4, 400, 0
    for _ in range(runs):
        rates = [draw.betavariate(alpha, beta) for _ in range(problems)]
        means = [sum(draw.random() < r for _ in range(samples)) / samples for r in rates]
        low, high = wilson_of_means(means, problems * samples, 0.95)
        held += low <= alpha / (alpha + beta) <= high
    assert 0.92 <= held / runs <= 0.99
