"""Digests the rows of an Arrow table, as ``flowmesh_core.dataset.row_digests`` does of columns.

Writers name rows by them, and readers compare rows with them at each first read. Vectors have
hundreds of numbers a row: here Arrow finds the few that are spelled unlike others, or refused.
"""

import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowmesh_core.dataset import Column, Columns, ColumnType, Schema, row_digests_of_forms
from flowmesh_core.dataset.columns import json_form
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity.canonical import PLAIN_FLOAT_LIMIT, PLAIN_FLOAT_MIN, float_fragment
from flowmesh_core.units import Digest

NUMBERS_LEAST = 200
"""Fewer numbers are examined one by one: each function of Arrow costs some microseconds."""
_ZEROS_MAX = 200
"""More zeros are left out by Arrow."""

_FLOATS = frozenset({ColumnType.FLOAT, ColumnType.LIST_FLOAT})


def _bits(number: float) -> int:
    return int.from_bytes(struct.pack("<d", number), "little")


_ZERO = pa.scalar(0, pa.uint64())
_ONE = pa.scalar(1, pa.uint64())
_LEAST = pa.scalar(_bits(PLAIN_FLOAT_MIN) << 1, pa.uint64())
_SPAN = pa.scalar((_bits(PLAIN_FLOAT_LIMIT) - _bits(PLAIN_FLOAT_MIN)) << 1, pa.uint64())


def table_row_digests(table: Any, columns: Columns, schema: Schema, count: int) -> list[Digest]:
    """Returns the digests of a table's rows.

    Args:
        table: of the types of the schema; its values are not checked otherwise.
        columns: the same as Python values.
        schema: the columns.
        count: how many rows.

    Raises:
        IdentityError: a float is -0.0, whose digest is that of 0.0.
    """
    forms = {c.name: _form(table.column(c.name), columns[c.name], c) for c in schema.columns}
    return row_digests_of_forms(forms, schema, count)


def _form(array: Any, values: Sequence[Any], column: Column) -> Sequence[Any]:
    if column.type not in _FLOATS:
        return json_form(values, column)
    is_flat = column.type is ColumnType.FLOAT
    chunk = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    numbers = chunk if is_flat else chunk.flatten()
    if len(numbers) < NUMBERS_LEAST:
        lists = [values] if is_flat else filter(None, values)
        if any(map(_negative_zero_in, lists)):
            raise _negative_zero()
        return json_form(values, column)
    if not is_flat and numbers.null_count:
        raise IdentityError(f"a list of column {column.name!r} has a null among its numbers")
    positions = _others(numbers)
    if not positions:
        return values
    return _with_fragments(values, positions) if is_flat else _in_lists(values, positions)


def _others(numbers: Any) -> list[int]:
    """Returns the positions of numbers that are not plain (``float_is_plain``), and of some zeros.

    Positive floats are in the order of their bits. Without the sign, and less the least plain one,
    all bits that are not of a plain number are large, since unsigned integers wrap.
    """
    bits = numbers.view(pa.uint64())
    distances = pc.subtract(pc.shift_left(bits, _ONE), _LEAST)
    positions = pc.indices_nonzero(pc.greater_equal(distances, _SPAN))
    if len(positions) > _ZEROS_MAX:
        positions = positions.filter(pc.not_equal(bits.take(positions), _ZERO))
    found: list[int] = positions.to_pylist()
    return found


def _with_fragments(values: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    out = list(values)
    for position in positions:
        number = values[position]
        if number:
            out[position] = float_fragment(number)
        elif math.copysign(1.0, number) < 0.0:
            raise _negative_zero()
    return out


def _in_lists(lists: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    """Returns lists with fragments; positions are those in all lists one after the other."""
    ends = list(accumulate(len(numbers or ()) for numbers in lists))
    by_row: dict[int, list[int]] = {}
    for position in positions:
        row = bisect_right(ends, position)
        by_row.setdefault(row, []).append(position - ends[row])  # from the end, so negative
    out = list(lists)
    for row, found in by_row.items():
        out[row] = _with_fragments(lists[row], found)
    return out


def _negative_zero_in(numbers: Sequence[Any]) -> bool:
    return 0.0 in numbers and any(x == 0.0 and math.copysign(1.0, x) < 0.0 for x in numbers)


def _negative_zero() -> IdentityError:
    return IdentityError("a chunk has the number -0.0, which is not written")
