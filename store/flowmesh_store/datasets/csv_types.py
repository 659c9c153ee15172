"""Infers the types of CSV's columns: string, unless every value is of one other type.

Null is of every type; the empty string is of type string only.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from flowmesh_core.errors import IdentityError
from flowmesh_store.datasets.exact_numbers import exact_float, shown

DIGITS_MAX = 20
INT64 = range(-(2**63), 2**63)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class ColumnKind:
    """The types that all values of a column so far can be read as; values come in batches."""

    __slots__ = ("_booleans", "_fit", "_given", "_integers", "_numbers")

    def __init__(self) -> None:
        self._given = False
        self._integers = self._fit = self._numbers = self._booleans = True

    def add(self, values: Sequence[str | None]) -> None:
        """Adds the next values; null fits every type."""
        given = [v for v in values if v is not None]
        if not given:
            return
        self._given = True
        if self._integers:
            self._integers = all(map(_INTEGER.fullmatch, given))
        if self._integers and self._fit:
            self._fit = all(len(v) <= DIGITS_MAX and int(v) in INT64 for v in given)
        if self._numbers and not self._integers:
            self._numbers = all(map(_NUMBER.fullmatch, given))
        if self._booleans:
            self._booleans = all(v in ("true", "false") for v in given)

    def read(
        self, values: Sequence[str | None], column: str, name: str, *, before: int = 0
    ) -> list[Any]:
        """Returns the values, typed.

        Args:
            values: of the column.
            column: its name, for errors.
            name: the file's name, for errors.
            before: the number of earlier rows, for errors.

        Raises:
            IdentityError: a number would lose digits; names its row and column.
        """
        reader = self._reader()
        typed = [None if v is None else reader(v) for v in values]
        if reader is exact_float:
            for number, (value, text) in enumerate(zip(typed, values, strict=True), before + 1):
                if value is None and text is not None:
                    raise IdentityError(
                        f"the number {shown(text)} has more digits than a float",
                        where=f"{name}, row {number}, column {column!r}",
                        remedy="round it, or write the file as JSON Lines with the number in"
                        " quotes, so that no digit is lost",
                    )
        return typed

    def example(self) -> Any:
        """Returns a value of the column's type; None where all values are null."""
        return self._reader()("0") if self._given else None

    def _reader(self) -> Callable[[str], Any]:
        if self._integers:
            return int if self._fit else str  # longer integers would lose digits as floats
        if self._numbers:
            return exact_float
        return "true".__eq__ if self._booleans else str
