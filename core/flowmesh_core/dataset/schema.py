"""Column types and schemas of data sets.

A schema is a set of named, typed columns in the order of their names: a row is an object, and the
order in which a file writes its keys has no meaning, so that equal rows of two tenants are equal.
Null is allowed in every column. A column without any value has the type ``null``; it agrees with
any other type (:func:`merge_schemas`) and changes no row's digest.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import pairwise

import msgspec

from flowmesh_core.errors import IdentityError


class ColumnType(StrEnum):
    """The closed list of column types."""

    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    BYTES = "bytes"
    JSON = "json"
    LIST_FLOAT = "list<float>"
    LIST_INT = "list<int>"
    LIST_STRING = "list<string>"


class Column(msgspec.Struct, frozen=True):
    """A named, typed column; the name is in NFC."""

    name: str
    type: ColumnType


class Schema(msgspec.Struct, frozen=True):
    """The columns of a data set in the order of their names. Build it with :meth:`of`."""

    columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        """Refuses columns out of order, twice, or not in NFC."""
        names = [c.name for c in self.columns]
        if any(a >= b for a, b in pairwise(names)):
            raise IdentityError("the columns of a schema must be in order of name, each once")
        for name in names:
            if column_name(name) != name:
                raise IdentityError(f"the column name {name!r} is not in NFC")

    @classmethod
    def of(cls, columns: Mapping[str, ColumnType | str]) -> "Schema":
        """Builds a schema from names and types in any order.

        Raises:
            IdentityError: an unknown type, a name that is not text, or two names equal in NFC.
        """
        out: dict[str, ColumnType] = {}
        for raw, given in columns.items():
            name = column_name(raw)
            if name in out:
                raise IdentityError(f"two columns are the same name {name!r} in NFC")
            try:
                out[name] = ColumnType(given)
            except ValueError:
                raise IdentityError(
                    f"{given!r} is not a column type",
                    where=f"column {name!r}",
                    remedy=f"use one of {', '.join(ColumnType)}",
                ) from None
        return cls(tuple(Column(n, t) for n, t in sorted(out.items())))

    @property
    def names(self) -> list[str]:
        """The columns' names in order."""
        return [c.name for c in self.columns]

    def types(self) -> dict[str, ColumnType]:
        """Returns the type of each column by name, in order of name."""
        return {c.name: c.type for c in self.columns}


def column_name(name: str) -> str:
    """Returns a column's name in NFC.

    Raises:
        IdentityError: the name is empty or not Unicode text.
    """
    if not isinstance(name, str) or not name:
        raise IdentityError(
            f"{name!r} is not a column name", remedy="use a string that is not empty"
        )
    if name.isascii():
        return name
    try:
        name.encode()
    except UnicodeEncodeError:
        raise IdentityError(f"the column name {name!a} is not Unicode text") from None
    return unicodedata.normalize("NFC", name)


def merge_schemas(schemas: Iterable[Schema]) -> Schema:
    """Returns the one schema that all agree with.

    A column of type ``null`` agrees with any type; otherwise names and types must be the same.

    Raises:
        IdentityError: names the columns that differ.
    """
    merged: dict[str, ColumnType] | None = None
    for s in schemas:
        types = s.types()
        if merged is None:
            merged = types
            continue
        problems = [f"{n!r} is missing in one" for n in sorted(merged.keys() ^ types.keys())]
        for n in merged.keys() & types.keys():
            a, b = merged[n], types[n]
            if a is ColumnType.NULL:
                merged[n] = b
            elif b not in (a, ColumnType.NULL):
                problems.append(f"{n!r} is {a} in one and {b} in another")
        if problems:
            raise IdentityError(
                f"the datasets' columns differ: {'; '.join(sorted(problems))}",
                remedy="cast or rename them first, for example with data.sql",
            )
    return Schema.of(merged or {})
