"""The schema that rows without one have."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema, column_name
from flowmesh_core.errors import IdentityError

_SIMPLE: Mapping[frozenset[type], ColumnType] = {
    frozenset(): ColumnType.NULL,
    frozenset({bool}): ColumnType.BOOL,
    frozenset({int}): ColumnType.INT,
    frozenset({float}): ColumnType.FLOAT,
    frozenset({int, float}): ColumnType.FLOAT,
    frozenset({str}): ColumnType.STRING,
    frozenset({bytes}): ColumnType.BYTES,
    frozenset({dict}): ColumnType.JSON,
    frozenset({dict, list}): ColumnType.JSON,
}
_LISTS: Mapping[frozenset[type], ColumnType] = {
    frozenset({int}): ColumnType.LIST_INT,
    frozenset({float}): ColumnType.LIST_FLOAT,
    frozenset({int, float}): ColumnType.LIST_FLOAT,
    frozenset({str}): ColumnType.LIST_STRING,
}


def infer_schema(rows: Sequence[Mapping[str, Any]]) -> Schema:
    """Finds the type of every column that occurs.

    Integers and floats together are ``float``; objects, and lists that are no list of numbers or of
    strings, are ``json``; a column of nulls alone is ``null``.

    Raises:
        IdentityError: a column mixes types, with a row of each (from 1), or there are no columns.
    """
    names = set().union(*rows)
    if rows and not names:
        raise IdentityError("the rows have no columns", where="row 1", remedy="name a value in it")
    by_name: dict[str, list[Any]] = {}
    for raw in sorted(names, key=str):
        name = column_name(raw)
        values = [row.get(raw) for row in rows]
        if name in by_name:
            raise IdentityError(f"two columns are the same name {name!r} in NFC")
        by_name[name] = values
    return Schema.of({name: _infer(name, values) for name, values in by_name.items()})


def _infer(name: str, values: list[Any]) -> ColumnType:
    types = frozenset(map(type, values)) - {type(None)}
    if tuple in types:
        types = types - {tuple} | {list}
    if types == {list}:
        inner = frozenset(type(x) for v in values if v is not None for x in v)
        return _LISTS.get(inner, ColumnType.JSON)
    found = _SIMPLE.get(types)
    if found is None:
        raise _mixed(name, values, types)
    return found


def _mixed(name: str, values: list[Any], types: frozenset[type]) -> IdentityError:
    known = frozenset().union(*_SIMPLE) | {list}
    strange = types - known
    if strange:
        t = next(iter(sorted(strange, key=lambda t: t.__name__)))
        row = next(i for i, v in enumerate(values, 1) if type(v) is t)
        return IdentityError(
            f"a value of type {t.__name__}, which no column type holds",
            where=f"row {row}, column {name!r}",
            remedy="write it as a string or a number",
        )
    first = {t: next(i for i, v in enumerate(values, 1) if type(v) is t) for t in types - {list}}
    if list in types:
        first[list] = next(i for i, v in enumerate(values, 1) if isinstance(v, list | tuple))
    places = sorted((row, _word(t)) for t, row in first.items())
    listed = ", ".join(f"row {row} has {word}" for row, word in places)
    return IdentityError(
        f"mixed types: {listed}",
        where=f"column {name!r}",
        remedy="write one type in all rows: quote the numbers, say",
    )


def _word(t: type) -> str:
    names = {str: "a string", bool: "a boolean", int: "an integer", float: "a number"}
    names |= {dict: "an object", list: "a list", bytes: "bytes"}
    return names[t]
