"""Splits CSV into records whose empty fields are null and whose ``""`` are empty strings.

Python's reader gives the same for both, so a record that has both is looked at again.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence

from flowmesh_core.errors import IdentityError

Values = Sequence[str | None]
_QUOTED_EMPTY = '""'


def records(lines: Iterable[str], name: str, delimiter: str) -> Iterator[tuple[Values, int]]:
    """Yields the fields of each record, with the number of its last line; blank lines have none.

    Args:
        lines: the text, with the ends of its lines.
        name: the file's name, for errors.
        delimiter: between the fields of a line.

    Raises:
        IdentityError: it is not CSV; names the line.
    """
    taken = _Taken(lines)
    reader = csv.reader(taken, delimiter=delimiter, strict=True)
    field = re.compile(
        rf'("[^"]*(?:""[^"]*)*"|[^{re.escape(delimiter)}\r\n]*)'
        rf"({re.escape(delimiter)}|\r\n|\r|\n|$)"
    )
    try:
        for row in reader:
            yield _with_nulls(row, taken.take(), field), reader.line_num
    except csv.Error as e:
        raise IdentityError(f"not CSV ({e})", where=f"{name}, line {reader.line_num}") from e


class _Taken:
    """Iterates over lines and keeps those of the current record."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._kept: list[str] = []

    def __iter__(self) -> "_Taken":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._kept.append(line)
        return line

    def take(self) -> list[str]:
        """Returns the lines since the last call."""
        kept, self._kept = self._kept, []
        return kept


def _with_nulls(row: list[str], lines: list[str], field: re.Pattern[str]) -> Values:
    if "" not in row:
        return row
    if not any(_QUOTED_EMPTY in line for line in lines):
        return [value or None for value in row]
    found = field.finditer("".join(lines))
    return [
        None if not value and match[1] != _QUOTED_EMPTY else value
        for value, match in zip(row, found, strict=False)
    ]
