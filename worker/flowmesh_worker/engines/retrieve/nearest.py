"""Exact nearest-neighbour search with the same result on every machine.

A matrix product finds candidates: its values depend on the library, the batch and the threads, but
only within a bound on rounding errors. Every row that could be among the nearest within that bound
is scored again with correctly rounded sums (``math.fsum``), and those scores decide.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from operator import mul
from typing import Any

Found = list[tuple[int, float]]
"""Row indices of the corpus with their scores, nearest first."""

_BLOCK = 64
_UNIT = 2.0**-53
_UNDERFLOW = 1e-290
Score = Callable[[Sequence[float], Sequence[float]], float]


def nearest(queries: Any, corpus: Any, k: int, metric: str) -> Iterator[Found]:
    """Yields the k nearest rows of every query, ordered by score and then by row.

    Args:
        queries: shape (queries, dimensions), float64, within the range that ``vectors`` checks.
        corpus: shape (rows, dimensions), float64.
        k: 1 to the number of rows.
        metric: ``cosine``, ``dot`` or ``l2``.
    """
    import numpy as np  # noqa: PLC0415 - comes with the worker's extras only

    lengths = np.sqrt(np.einsum("ij,ij->i", corpus, corpus))
    score, descending = _SCORES[metric], metric != "l2"
    for start in range(0, len(queries), _BLOCK):
        block = queries[start : start + _BLOCK]
        near, margins = _nearness(block, corpus, lengths, metric)
        for query, row, margin in zip(block, near, margins, strict=True):
            least = np.partition(row, len(row) - k)[len(row) - k]
            candidates = np.flatnonzero(row >= least - 2 * margin)
            vector = query.tolist()
            scored = [(int(i), score(vector, corpus[i].tolist())) for i in candidates]
            scored.sort(key=lambda s: (-s[1] if descending else s[1], s[0]))
            yield scored[:k]


def _nearness(queries: Any, corpus: Any, lengths: Any, metric: str) -> tuple[Any, Any]:
    """Returns scores that grow with nearness, and a bound on their error for each query.

    The rounding error of a sum of d products is at most d·u·Σ|aᵢbᵢ| ≤ d·u·‖a‖·‖b‖ in any order of
    summation (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 3.1), u being 2⁻⁵³; the
    factor 4 covers the operations before and after it.
    """
    import numpy as np  # noqa: PLC0415

    unit = 4 * (queries.shape[1] + 8) * _UNIT
    own, most = np.sqrt(np.einsum("ij,ij->i", queries, queries)), float(lengths.max())
    products = queries @ corpus.T
    if metric == "cosine":
        return products / own[:, None] / lengths[None, :], np.full(len(queries), unit)
    if metric == "dot":
        return products, unit * own * most + _UNDERFLOW
    squares = own[:, None] ** 2 + lengths[None, :] ** 2 - 2 * products
    return -squares, unit * (own + most) ** 2 + _UNDERFLOW


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(map(mul, a, b))


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    cosine = _dot(a, b) / (math.sqrt(_dot(a, a)) * math.sqrt(_dot(b, b)))
    return max(-1.0, min(1.0, cosine))


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


_SCORES: dict[str, Score] = {"cosine": _cosine, "dot": _dot, "l2": _distance}
