"""How well observations of two kinds can be distinguished, as the area under the ROC curve (AUC).

An observer takes features (seconds, bytes, counts) of two kinds of samples. The better of two
judges counts: the single feature that separates best, and a logistic regression of all. Features
and weights are chosen on one half of the samples and judged on the other, so that chance does not
count as a finding. 0.5 is a guess, 1 is certainty. Called by ``side_channels.py``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import rankdata

Floats = NDArray[np.float64]
Sample = Mapping[str, float]
Z_95 = 1.959964
"""Of the two-sided 95% interval, whose upper end is the bound."""
FOLDS = 5
NEWTON_STEPS = 12
PENALTIES = (1.0, 10.0, 100.0)
"""Of which cross-validation within the first half chooses one."""
CLIPPED = 0.01
"""Extreme values count as this quantile, or one pause of the machine would decide the fit."""


@dataclass(frozen=True, slots=True)
class Separation:
    """How well two kinds of samples were distinguished.

    Attributes:
        auc: of the judge with the higher upper bound.
        lower: beginning of its 95% interval (DeLong).
        upper: end of that interval.
        judge: the name of the feature, or ``logistic regression``.
        samples: of each kind, both halves.
    """

    auc: float
    lower: float
    upper: float
    judge: str
    samples: int


def separation(first: Sequence[Sample], second: Sequence[Sample], *, seed: int = 0) -> Separation:
    """Trains both judges on one half, and returns the better one's AUC on the other half.

    Args:
        first: observations of one kind; all have the same features.
        second: as many of the other kind.
        seed: divides the samples into halves.
    """
    names = sorted(first[0])
    kinds = [
        np.array([[s[n] for n in names] for s in kind], dtype=float) for kind in (first, second)
    ]
    halves = [_halves(kind, seed) for kind in kinds]
    train, label = _stacked([half[0] for half in halves])
    judged = [half[1] for half in halves]
    singles = [auc(train[:, n], label) for n in range(len(names))]
    best = int(np.argmax(np.abs(np.array(singles) - 0.5)))
    sign = 1.0 if singles[best] >= 0.5 else -1.0
    scores = {names[best]: [sign * kind[:, best] for kind in judged]}
    if len(names) > 1:
        scale = _Scale(train)
        weights = _fit(scale(train), label, _penalty(scale(train), label, seed))
        scores["logistic regression"] = [_logits(weights, scale(kind)) for kind in judged]
    found = [(*interval(low, high), name) for name, (low, high) in scores.items()]
    value, lower, upper, name = max(found, key=lambda x: x[2])
    return Separation(value, lower, upper, name, min(len(first), len(second)))


def auc(scores: Floats, label: Floats) -> float:
    """Returns how often a score of label 1 is above one of label 0; equal scores count half."""
    ones = int(label.sum())
    ranks = rankdata(scores)[label == 1].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * (len(label) - ones)))


def interval(low: Floats, high: Floats) -> tuple[float, float, float]:
    """Returns the AUC of ``high`` over ``low`` and both ends of its 95% interval.

    The variance is DeLong's (Biometrics 44, 1988), by ranks (Sun and Xu, 2014).
    """
    both = rankdata(np.concatenate([low, high]))
    above = (both[len(low) :] - rankdata(high)) / len(low)
    below = 1.0 - (both[: len(low)] - rankdata(low)) / len(high)
    value = float(above.mean())
    variance = above.var(ddof=1) / len(high) + below.var(ddof=1) / len(low)
    reach = Z_95 * float(np.sqrt(variance))
    return value, max(0.0, value - reach), min(1.0, value + reach)


class _Scale:
    """Clips and standardizes features by the quantiles and moments of the training half."""

    def __init__(self, train: Floats) -> None:
        self._low, self._high = np.quantile(train, [CLIPPED, 1.0 - CLIPPED], axis=0)
        clipped = np.clip(train, self._low, self._high)
        self._mean, spread = clipped.mean(axis=0), clipped.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)

    def __call__(self, values: Floats) -> Floats:
        clipped = np.clip(values, self._low, self._high)
        return np.asarray((clipped - self._mean) / self._spread)


def _halves(kind: Floats, seed: int) -> tuple[Floats, Floats]:
    order = np.random.default_rng(seed).permutation(len(kind))
    return kind[order[: len(kind) // 2]], kind[order[len(kind) // 2 :]]


def _stacked(kinds: Sequence[Floats]) -> tuple[Floats, Floats]:
    label = np.concatenate([np.full(len(kind), float(n)) for n, kind in enumerate(kinds)])
    return np.concatenate(kinds), label


def _penalty(values: Floats, label: Floats, seed: int) -> float:
    """Chooses the strength of the regularization by cross-validation."""
    fold = np.random.default_rng(seed).permutation(len(label)) % FOLDS

    def skill(penalty: float) -> float:
        found = np.empty(len(label))
        for n in range(FOLDS):
            weights = _fit(values[fold != n], label[fold != n], penalty)
            found[fold == n] = _logits(weights, values[fold == n])
        return auc(found, label)

    return max(PENALTIES, key=skill)


def _fit(values: Floats, label: Floats, penalty: float) -> Floats:
    """Returns intercept and weights of the penalized logistic regression, by Newton's method."""
    columns = np.column_stack([np.ones(len(values)), values])
    damping = np.diag([1e-6, *[penalty] * values.shape[1]])
    weights = np.zeros(columns.shape[1])
    for _ in range(NEWTON_STEPS):
        expected = expit(columns @ weights)
        slope = columns.T @ (expected - label) + damping @ weights
        curvature = (columns.T * (expected * (1.0 - expected))) @ columns + damping
        weights = weights - np.linalg.solve(curvature, slope)
    return weights


def _logits(weights: Floats, values: Floats) -> Floats:
    return np.asarray(weights[0] + values @ weights[1:])
