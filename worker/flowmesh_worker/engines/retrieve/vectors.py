"""Reads a column of lists of numbers as a matrix; errors name the row."""

from collections.abc import Sequence
from typing import Any

from flowmesh_core.dataset import ColumnType
from flowmesh_worker.engine_api import DatasetInput
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.eval.scorer import require_columns

LENGTH_MAX = 1e100
"""The largest allowed number; with larger ones, or for cosines below the inverse, intermediate
results would leave the range of doubles."""


def read_vectors(given: DatasetInput, column: str, port: str) -> Any:
    """Returns the vectors as a numpy array of float64, shape (rows, dimensions).

    Args:
        given: at least one row.
        column: of type list<float>, list<int>, or json with lists of numbers.
        port: the input's name, for errors.

    Raises:
        AttemptError: bad input; no such column, no vector, an empty one, vectors of different
            lengths, or numbers that are not finite or out of range, with the row's number.
    """
    import numpy as np  # noqa: PLC0415 - comes with the worker's extras only

    require_columns(given.manifest.schema, column, port=port)
    kind = given.manifest.schema.types()[column]
    if kind in (ColumnType.LIST_FLOAT, ColumnType.LIST_INT):
        vectors = _from_arrow(given.table().column(column), column, port)
    else:
        vectors = _from_values([row[column] for row in given.rows()], column, port)
    _refuse(~np.isfinite(vectors).all(axis=1), "has a number that is not finite", column, port)
    far = np.abs(vectors).max(axis=1) > LENGTH_MAX
    _refuse(far, f"has a number beyond {LENGTH_MAX:g}", column, port)
    return vectors


def refuse_without_direction(vectors: Any, column: str, port: str) -> None:
    """Refuses vectors whose length is (nearly) zero: they have no cosine.

    Raises:
        AttemptError: bad input; names the row.
    """
    import numpy as np  # noqa: PLC0415

    small = np.abs(vectors).max(axis=1) < 1 / LENGTH_MAX
    _refuse(small, "has length 0, and so no cosine", column, port)


def _from_arrow(column: Any, name: str, port: str) -> Any:
    import numpy as np  # noqa: PLC0415

    lengths = [None if n is None else int(n) for n in _lengths(column)]
    _check_lengths(lengths, name, port)
    flat = column.combine_chunks().flatten()
    if flat.null_count:
        at = next(i for i, valid in enumerate(flat.is_valid().to_pylist()) if not valid)
        raise _refused(at // (lengths[0] or 1), "has a null in its vector", name, port)
    values = flat.to_numpy(zero_copy_only=False).astype(np.float64)
    return values.reshape(len(lengths), -1)


def _lengths(column: Any) -> list[Any]:
    import pyarrow.compute as pc  # noqa: PLC0415 - pyarrow is heavy

    return list(pc.list_value_length(column).to_pylist())


def _from_values(values: Sequence[Any], name: str, port: str) -> Any:
    import numpy as np  # noqa: PLC0415

    for number, value in enumerate(values):
        numbers = value if isinstance(value, list) else [None]
        if any(isinstance(x, bool) or not isinstance(x, int | float) for x in numbers):
            raise _refused(number, "is not a list of numbers", name, port)
    _check_lengths([len(v) for v in values], name, port)
    return np.array(values, dtype=np.float64)


def _check_lengths(lengths: Sequence[int | None], name: str, port: str) -> None:
    for number, length in enumerate(lengths):
        if not length:
            raise _refused(number, "has no vector" if length is None else "is empty", name, port)
        if length != lengths[0]:
            what = f"has {length} numbers, and row 1 has {lengths[0]}"
            raise _refused(number, what, name, port)


def _refuse(wrong: Any, what: str, name: str, port: str) -> None:
    if wrong.any():
        raise _refused(int(wrong.argmax()), what, name, port)


def _refused(index: int, what: str, name: str, port: str) -> Exception:
    return bad_input(
        f"input {port!r}, row {index + 1}: column {name!r} {what}",
        "all rows need vectors of one model; leave out rows without one in a step before",
    )
