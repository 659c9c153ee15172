"""Splits CSV into records whose empty fields are null and whose ``""`` are empty strings.

Python's reader gives the same for both, so a record that has both is looked at again. The separator
is that of the file's ending, and is not guessed: another one would give one column without a word,
so that a first line which has another one only is refused.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence

from flowmesh_core.errors import IdentityError

Values = Sequence[str | None]
_QUOTED_EMPTY = '""'
_ENDINGS = {",": ".csv", "\t": ".tsv"}
_OTHER_SEPARATORS = ";\t|,"
_QUOTED = re.compile(r'"[^"]*("|$)')


def records(lines: Iterable[str], name: str, delimiter: str) -> Iterator[tuple[Values, int]]:
    """Yields the fields of each record, with the number of its last line; blank lines have none.

    Args:
        lines: the text, with the ends of its lines.
        name: the file's name, for errors.
        delimiter: between the fields of a line.

    Raises:
        IdentityError: it is not CSV, or has another delimiter; names the line.
    """
    taken = _Taken(_of_delimiter(lines, name, delimiter))
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


def _of_delimiter(lines: Iterable[str], name: str, delimiter: str) -> Iterator[str]:
    """Yields the lines, unless the first that is not blank has another delimiter only."""
    rest = iter(lines)
    for number, line in enumerate(rest, 1):
        bare = _QUOTED.sub("", line)
        other = next((s for s in _OTHER_SEPARATORS if s in bare and delimiter not in bare), "")
        if other:
            ending = _ENDINGS.get(other)
            change = f"let the file's name end in {ending}" if ending else ""
            raise IdentityError(
                f"the values seem to be separated by {other!r}, not {delimiter!r}",
                where=f"{name}, line {number}",
                remedy=f"{change or f'write {delimiter!r} between them'}, or quote the name of a"
                " single column",
            )
        yield line
        if line.strip("\r\n"):
            break
    yield from rest


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
