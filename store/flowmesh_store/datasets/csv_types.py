"""Infers the types of CSV's columns: string, unless every value is of one other type."""

import re
from collections.abc import Callable, Sequence
from typing import Any

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

    def add(self, values: Sequence[str]) -> None:
        """Adds the next values; empty ones fit every type."""
        given = [v for v in values if v]
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

    def read(self, values: Sequence[str]) -> list[Any]:
        """Returns the values, typed; empty ones are None."""
        reader = self._reader()
        return [reader(v) if v else None for v in values]

    def example(self) -> Any:
        """Returns a value of the column's type; None where all values are empty."""
        return self._reader()("0") if self._given else None

    def _reader(self) -> Callable[[str], Any]:
        if self._integers:
            return int if self._fit else str  # longer integers would lose digits as floats
        if self._numbers:
            return float
        return "true".__eq__ if self._booleans else str
