"""Infers the schema of rows that come without one."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema, column_name
from flowmesh_core.errors import ContentLimitError, IdentityError

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
    """Returns the schema of rows: a type for every column that occurs.

    Integers and floats together are ``float``; objects, and lists that are not all numbers or all
    strings, are ``json``; a column with only nulls is ``null``.

    Raises:
        IdentityError: a column mixes types, with a row of each (from 1), or there are no columns.
    """
    inference = SchemaInference()
    inference.add(rows)
    return inference.schema()


class SchemaInference:
    """Infers the schema of rows that come in batches, as :func:`infer_schema` does.

    Args:
        columns_max: more columns are refused; None for no limit.
    """

    def __init__(self, *, columns_max: int | None = None) -> None:
        self._columns: dict[Any, _Seen] = {}
        self._columns_max = columns_max
        self._rows = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds the next rows.

        Raises:
            ContentLimitError: there are more columns than allowed.
        """
        names = set().union(*rows)
        if self._columns_max is not None:
            refuse_columns(len(names | self._columns.keys()), self._columns_max)
        for raw in names:
            seen = self._columns.setdefault(raw, _Seen())
            seen.add([row.get(raw) for row in rows], self._rows)
        self._rows += len(rows)

    def schema(self) -> Schema:
        """Returns the schema of all rows so far.

        Raises:
            IdentityError: as for :func:`infer_schema`.
        """
        if self._rows and not self._columns:
            raise IdentityError(
                "the rows have no columns", where="row 1", remedy="give it at least one value"
            )
        by_name: dict[str, _Seen] = {}
        for raw in sorted(self._columns, key=str):
            name = column_name(raw)
            if name in by_name:
                raise IdentityError(f"two columns are the same name {name!r} in NFC")
            by_name[name] = self._columns[raw]
        return Schema.of({name: seen.type(name) for name, seen in by_name.items()})


def refuse_columns(count: int, most: int) -> None:
    """Raises ``ContentLimitError`` where there are more columns than allowed."""
    if count > most:
        raise ContentLimitError(
            f"there are more than {most:,} columns",
            remedy="put related values into lists, or give each its own row",
        )


class _Seen:
    """The types of the values of one column."""

    __slots__ = ("_first", "_items")

    def __init__(self) -> None:
        self._first: dict[type, int] = {}
        self._items: set[type] = set()

    def add(self, values: list[Any], before: int) -> None:
        """Adds the next values, of which the first is ``before`` rows after the first of all."""
        types = set(map(type, values))
        for t in types - self._first.keys():
            self._first[t] = before + next(i for i, v in enumerate(values, 1) if type(v) is t)
        if list in types or tuple in types:
            for v in values:
                if type(v) is list or type(v) is tuple:
                    self._items.update(map(type, v))

    def type(self, name: str) -> ColumnType:
        """Returns the column's type.

        Raises:
            IdentityError: the values mix types; names the column and a row of each.
        """
        first = {t: row for t, row in self._first.items() if t is not type(None)}
        if tuple in first:
            row = first.pop(tuple)
            first[list] = min(row, first.get(list, row))
        types = frozenset(first)
        if types == {list}:
            return _LISTS.get(frozenset(self._items), ColumnType.JSON)
        found = _SIMPLE.get(types)
        if found is None:
            raise _mixed(name, first)
        return found


def _mixed(name: str, first: Mapping[type, int]) -> IdentityError:
    known = frozenset().union(*_SIMPLE) | {list}
    strange = first.keys() - known
    if strange:
        t = next(iter(sorted(strange, key=lambda t: t.__name__)))
        return IdentityError(
            f"a value of type {t.__name__}, for which there is no column type",
            where=f"row {first[t]}, column {name!r}",
            remedy="write it as a string or a number",
        )
    places = sorted((row, _word(t)) for t, row in first.items())
    listed = ", ".join(f"row {row} has {word}" for row, word in places)
    return IdentityError(
        f"mixed types: {listed}",
        where=f"column {name!r}",
        remedy="write one type in all rows, for example by quoting the numbers",
    )


def _word(t: type) -> str:
    names = {str: "a string", bool: "a boolean", int: "an integer", float: "a number"}
    names |= {dict: "an object", list: "a list", bytes: "bytes"}
    return names[t]
