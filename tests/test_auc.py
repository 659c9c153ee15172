"""The AUC of an observer finds differences that exist, and none where there are none."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import auc


def samples(seed: int, count: int, shift: float, apart: float = 0.0) -> list[dict[str, float]]:
    """Two features with common noise: ``shift`` of one alone is small beside that noise."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 10, count)
    own = rng.normal(0, 0.1, (count, 2))
    return [
        {"a": n + x + shift, "b": n + y + apart, "constant": 1.0}
        for n, (x, y) in zip(noise, own, strict=True)
    ]


def test_equal_distributions_are_not_told_apart_and_the_bound_holds_in_95_percent() -> None:
    found = [auc.separation(samples(s, 500, 0), samples(s + 999, 500, 0)) for s in range(20)]
    assert sum(f.upper < 0.5 for f in found) <= 3
    assert 0.45 < np.mean([f.auc for f in found]) < 0.55


def test_a_feature_that_differs_is_found_in_either_direction() -> None:
    for shift in (20.0, -20.0):
        found = auc.separation(samples(1, 200, shift, shift), samples(2, 200, 0))
        assert found.auc > 0.85


def test_the_regression_sees_what_no_single_feature_shows() -> None:
    found = auc.separation(samples(1, 500, 0.5), samples(2, 500, 0))
    assert found.judge == "logistic regression"
    assert found.auc > 0.95


def test_the_interval_is_delongs() -> None:
    rng = np.random.default_rng(5)
    low, high = rng.normal(0, 1, 300), rng.normal(1, 1, 300)
    value, lower, upper = auc.interval(low, high)
    assert value == pytest.approx(np.mean(low[:, None] < high[None, :]))
    drawn = [
        np.mean(rng.choice(low, 300)[:, None] < rng.choice(high, 300)[None, :]) for _ in range(400)
    ]
    assert upper - value == pytest.approx(value - lower)
    assert upper - value == pytest.approx(1.96 * np.std(drawn), rel=0.15)


def test_equal_values_count_half() -> None:
    assert auc.auc(np.ones(4), np.array([0.0, 1.0, 0.0, 1.0])) == 0.5
    assert auc.interval(np.ones(4), np.ones(4)) == (0.5, 0.5, 0.5)
