"""Exact search, compared with exact arithmetic and with other batches."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_worker.engines.retrieve.nearest import nearest

METRICS = pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
COARSE = st.integers(-3, 3).map(float)
FINE = st.floats(-10, 10).map(lambda x: round(x, 9))


def matrix(draw: st.DrawFn, rows: int, width: int) -> np.ndarray:
    """Returns vectors, many of which are equal or differ only in the last bits."""
    value = draw(st.sampled_from([COARSE, FINE]))
    vectors = [draw(st.lists(value, min_size=width, max_size=width)) for _ in range(rows)]
    out = np.array(vectors)
    for i in range(rows):
        if draw(st.booleans()):
            out[i] = out[draw(st.integers(0, rows - 1))]
        if draw(st.booleans()):
            out[i] = np.where(out[i] == 0, 0, np.nextafter(out[i], math.inf))
    out[~out.any(axis=1)] = 1.0
    return out


@st.composite
def searches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    width, rows = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    corpus = matrix(draw, rows, width)
    return matrix(draw, draw(st.integers(1, 4)), width), corpus, draw(st.integers(1, rows))


def exact(query: np.ndarray, row: np.ndarray, metric: str) -> float:
    """Computes the score with fractions, rounded once."""
    a, b = ([Fraction(x) for x in v.tolist()] for v in (query, row))
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    if metric == "dot":
        return float(dot)
    if metric == "l2":
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))
    squares = sum(x * x for x in a) * sum(x * x for x in b)
    return math.copysign(math.sqrt(dot * dot / squares), dot)


@METRICS
@settings(max_examples=40)
@given(searches())
def test_the_found_rows_are_the_nearest(
    metric: str, search: tuple[np.ndarray, np.ndarray, int]
) -> None:
    queries, corpus, k = search
    found = list(nearest(queries, corpus, k, metric))
    sign = -1 if metric == "l2" else 1
    for query, places in zip(queries, found, strict=True):
        truth = [exact(query, row, metric) for row in corpus]
        best = sorted((sign * t for t in truth), reverse=True)[:k]
        assert [sign * s for _, s in places] == pytest.approx(best, rel=1e-14, abs=1e-13)
        assert [s for _, s in places] == pytest.approx([truth[i] for i, _ in places], abs=1e-13)
        order = [(-sign * s, i) for i, s in places]
        assert order == sorted(order)
        left = min(order[-1:])
        scores = dict(places)
        again = dict(next(nearest(query[None], corpus, len(corpus), metric)))
        assert all((-sign * again[i], i) > left for i in again.keys() - scores.keys())


@METRICS
@settings(max_examples=40)
@given(searches())
def test_a_query_finds_the_same_in_every_batch(
    metric: str, search: tuple[np.ndarray, np.ndarray, int]
) -> None:
    queries, corpus, k = search
    alone = [next(nearest(q[None], corpus, k, metric)) for q in queries]
    assert list(nearest(queries, corpus, k, metric)) == alone
    many = np.concatenate([queries] * 70)
    assert list(nearest(many, corpus, k, metric)) == alone * 70


@METRICS
def test_equal_scores_stand_in_the_corpus_order(metric: str) -> None:
    corpus = np.array([[0.1, 0.7, 0.3]] * 200 + [[-1.0, 0.0, 0.0]])
    (found,) = nearest(np.array([[0.3, 0.2, 0.9]]), corpus, 150, metric)
    assert [i for i, _ in found] == list(range(150))


@METRICS
def test_numbers_of_every_magnitude_are_distinguished(metric: str) -> None:
    scales = [1e-90, 1.0, 1e90]
    for scale in scales:
        corpus = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]) * scale
        (found,) = nearest(np.array([[1.0, 0.1]]) * scale, corpus, 3, metric)
        assert found[0][0] == (1 if metric == "dot" else 0)
        assert all(math.isfinite(s) for _, s in found)
