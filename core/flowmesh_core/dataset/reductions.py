"""Reduces the metrics of a row-wise step's chunks to the step's metrics.

Sums of floats are exact before they are rounded once, so that the order of chunks does not matter.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flowmesh_core.catalog.contract import Reduction
from flowmesh_core.errors import IdentityError

COUNT = "count"


def reduce_metrics(reduction: Reduction, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the metrics of all chunks reduced to one.

    Args:
        reduction: ``sum`` adds numbers by key; ``mean-by-count`` weighs numbers by the part's
            ``count`` and sums the counts, and a mean over nothing is null; ``merge`` unites
            keys.
        parts: one object per chunk, in the order of the chunks.

    Raises:
        IdentityError: names the part (from 1) and the key that cannot be reduced.
    """
    match reduction:
        case Reduction.SUM:
            return _sum(parts)
        case Reduction.MEAN_BY_COUNT:
            return _mean(parts)
        case Reduction.MERGE:
            return _merge(parts)
        case Reduction.CONCAT:
            raise IdentityError("metrics cannot be concatenated", remedy="declare a reduction")


def _sum(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    gathered: dict[str, list[int | float]] = {}
    for number, part in enumerate(parts, 1):
        for key, value in part.items():
            gathered.setdefault(key, []).append(_number(value, number, key))
    return {key: _total(key, values) for key, values in sorted(gathered.items())}


def _mean(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    gathered: dict[str, list[tuple[int | float, int]]] = {}
    total = 0
    for number, part in enumerate(parts, 1):
        count = part.get(COUNT)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise IdentityError(
                f"{count!r} is not a number of rows",
                where=f"metrics of chunk {number}, key {COUNT!r}",
                remedy="an engine whose metrics are means reports the rows they are over",
            )
        total += count
        for key, value in part.items():
            if key != COUNT:
                pairs = gathered.setdefault(key, [])
                pairs += [(_number(value, number, key), count)] if count else []
    means = {
        key: _fsum(key, (v * n for v, n in pairs)) / sum(n for _, n in pairs) if pairs else None
        for key, pairs in sorted(gathered.items())
    }
    return {**means, COUNT: total}


def _merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for number, part in enumerate(parts, 1):
        for key, value in part.items():
            if key in out and out[key] != value:
                raise IdentityError(
                    f"{value!r} differs from {out[key]!r} of an earlier chunk",
                    where=f"metrics of chunk {number}, key {key!r}",
                    remedy="use another key in each chunk, or another reduction",
                )
            out[key] = value
    return dict(sorted(out.items()))


def _number(value: Any, number: int, key: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IdentityError(
            f"{value!r} is not a number", where=f"metrics of chunk {number}, key {key!r}"
        )
    return value


def _total(key: str, values: Sequence[int | float]) -> int | float:
    return sum(values) if all(isinstance(v, int) for v in values) else _fsum(key, values)


def _fsum(key: str, values: Iterable[int | float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError) as e:  # beyond the largest float, or infinite both ways
        raise IdentityError(
            f"the chunks' values have no finite sum: {e}", where=f"metrics, key {key!r}"
        ) from e
