"""Types rows by column, with errors that name the row and the column.

Its result is hashed, written to Parquet and given to engines: numbers of a float column are floats,
``-0.0`` is ``0.0``, json values are strings in canonical form.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
import pybase64

from flowmesh_core.dataset.schema import Column, ColumnType, Schema, column_name
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity.canonical import (
    INT_MAX,
    INT_MIN,
    PLAIN_FLOAT_LIMIT,
    PLAIN_FLOAT_MIN,
    canonical_bytes,
    float_fragment,
)

Columns = Mapping[str, Sequence[Any]]
"""Values by column name; every column has one value per row, None for null."""

_SHORT = 60


def columns_of(
    rows: Sequence[Mapping[str, Any]], schema: Schema, *, before: int = 0
) -> dict[str, list[Any]]:
    """Returns rows as columns typed by a schema.

    Args:
        rows: objects; missing columns are null.
        schema: the columns; rows may have no others.
        before: how many rows of the same data set came before these, for the errors.

    Raises:
        IdentityError: names the row (from 1), the column, the value and what was expected.
    """
    names = set(schema.names)
    if not all(map(names.issuperset, rows)):
        rows = [_renamed(row, names, number) for number, row in enumerate(rows, before + 1)]
    return {
        c.name: typed_column([row.get(c.name) for row in rows], c, before=before)
        for c in schema.columns
    }


def typed_column(values: Sequence[Any], column: Column, *, before: int = 0) -> list[Any]:
    """Returns the typed values of one column.

    Args:
        values: one per row.
        column: the name and type.
        before: as for :func:`columns_of`.

    Raises:
        IdentityError: as for :func:`columns_of`.
    """
    types = set(map(type, values))
    types.discard(type(None))
    if not types:
        return list(values)
    try:
        return _READERS[column.type](values, types)
    except (_UnfitError, UnicodeEncodeError, IdentityError):
        for number, value in enumerate(values, before + 1):
            _check_one(value, number, column)
        raise


def json_form(values: Sequence[Any], column: Column) -> Sequence[Any]:
    """Returns a typed column as orjson writes it canonically: bytes are base64."""
    match column.type:
        case ColumnType.BYTES:
            return [v if v is None else _base64_fragment(v) for v in values]
        case ColumnType.FLOAT:
            if _all_plain(filter(None, values)):
                return values
            return [v if v is None else float_fragment(v) for v in values]
        case ColumnType.LIST_FLOAT:
            return [v if v is None or _all_plain(v) else [*map(float_fragment, v)] for v in values]
        case _:
            return values


def _base64_fragment(value: bytes) -> orjson.Fragment:
    # pybase64 takes a twelfth of the time of the standard library, or of msgspec.
    return orjson.Fragment(b'"%b"' % pybase64.b64encode(value))


def _all_plain(values: Iterable[float]) -> bool:
    """Whether all are plain floats, as in most vectors; typed columns have no ``-0.0``."""
    sizes = [*filter(None, map(abs, values))]
    return not sizes or (min(sizes) >= PLAIN_FLOAT_MIN and max(sizes) < PLAIN_FLOAT_LIMIT)


class _UnfitError(Exception):
    """Some value does not fit its column."""


def _renamed(row: Mapping[str, Any], names: set[str], number: int) -> Mapping[str, Any]:
    out = {column_name(k): v for k, v in row.items()}
    unknown = sorted(out.keys() - names)
    if unknown or len(out) != len(row):
        what = f"unknown columns {', '.join(map(repr, unknown))}" if unknown else "a column twice"
        raise IdentityError(
            what, where=f"row {number}", remedy=f"the schema has {', '.join(sorted(names))}"
        )
    return out


def _check_one(value: Any, number: int, column: Column) -> None:
    if value is None:
        return
    try:
        _READERS[column.type]([value], {type(value)})
    except (_UnfitError, UnicodeEncodeError, IdentityError) as e:
        shown = ascii(value) if isinstance(e, UnicodeEncodeError) else repr(value)
        shown = shown if len(shown) <= _SHORT else shown[:_SHORT] + "…"
        reason = f" ({e})" if isinstance(e, IdentityError) else ""
        raise IdentityError(
            f"{shown} is not of type {column.type}{reason}",
            where=f"row {number}, column {column.name!r}",
            remedy=_remedy(value),
        ) from e


def _remedy(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "correct the value: data sets have finite numbers only; use null for a missing one"
    return "correct the value, or give the whole column its type"


def _only(*allowed: type) -> Callable[[Sequence[Any], set[type]], list[Any]]:
    def read(values: Sequence[Any], types: set[type]) -> list[Any]:
        if not types <= set(allowed):
            raise _UnfitError
        return list(values)

    return read


def _ints(values: Sequence[Any], types: set[type]) -> list[Any]:
    if types != {int}:
        raise _UnfitError
    given = [v for v in values if v is not None]
    if min(given) < INT_MIN or max(given) > INT_MAX:
        raise _UnfitError
    return list(values)


def _floats(values: Sequence[Any], types: set[type]) -> list[Any]:
    # Adding 0.0 turns -0.0 into 0.0.
    if not types <= {int, float}:
        raise _UnfitError
    if types == {float} and None not in values and math.isfinite(sum(values)):
        return [v + 0.0 for v in values]  # a sum is not finite if a number is not
    if int in types and any(type(v) is int and _finite(v) != v for v in values):
        raise _UnfitError  # an integer of more digits than a float has
    return [v if v is None else _finite(v) + 0.0 for v in values]


def _finite(value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise _UnfitError from None
    if not math.isfinite(number):
        raise _UnfitError
    return number


def _strings(values: Sequence[Any], types: set[type]) -> list[Any]:
    if types != {str}:
        raise _UnfitError
    for v in values:
        if v is not None and not v.isascii():
            v.encode()
    return list(values)


def _jsons(values: Sequence[Any], types: set[type]) -> list[Any]:
    return [v if v is None else canonical_bytes(v).decode() for v in values]


def _lists(read: Callable[[Sequence[Any], set[type]], list[Any]]) -> Any:
    def read_lists(values: Sequence[Any], types: set[type]) -> list[Any]:
        if not types <= {list, tuple}:
            raise _UnfitError
        return [v if v is None else _list(v, read) for v in values]

    return read_lists


def _list(value: Sequence[Any], read: Callable[[Sequence[Any], set[type]], list[Any]]) -> list[Any]:
    return read(value, set(map(type, value))) if value else []


def _nulls(values: Sequence[Any], types: set[type]) -> list[Any]:
    raise _UnfitError


_READERS: Mapping[ColumnType, Callable[[Sequence[Any], set[type]], list[Any]]] = {
    ColumnType.NULL: _nulls,
    ColumnType.BOOL: _only(bool),
    ColumnType.INT: _ints,
    ColumnType.FLOAT: _floats,
    ColumnType.STRING: _strings,
    ColumnType.BYTES: _only(bytes),
    ColumnType.JSON: _jsons,
    ColumnType.LIST_FLOAT: _lists(_floats),
    ColumnType.LIST_INT: _lists(_ints),
    ColumnType.LIST_STRING: _lists(_strings),
}


def rows_of(columns: Columns, schema: Schema, count: int) -> Iterable[dict[str, Any]]:
    """Returns typed columns as rows, with json columns still as canonical strings."""
    names = schema.names
    if not names:
        return ({} for _ in range(count))
    return (
        dict(zip(names, values, strict=True))
        for values in zip(*(columns[n] for n in names), strict=True)
    )
