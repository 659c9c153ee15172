"""Reads CSV in batches of lines: once for the columns' types, once for the values."""

import codecs
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from flowmesh_core.dataset import Schema, SchemaInference, columns_of
from flowmesh_core.dataset.infer import refuse_columns
from flowmesh_core.errors import IdentityError
from flowmesh_store.datasets.budget import COLUMNS_MAX, ROW_BYTES_MAX, DecodeBudget, long_row
from flowmesh_store.datasets.csv_records import Values, records
from flowmesh_store.datasets.csv_types import ColumnKind
from flowmesh_store.datasets.decoding import Batch

BATCH_ROWS = 256
BATCH_CHARACTERS = 4 << 20
_PIECE_BYTES = 1 << 20


class CsvReader:
    """Rows of a CSV file whose first line names the columns; empty fields are null."""

    def __init__(self, path: Path, name: str, delimiter: str, budget: DecodeBudget) -> None:
        """Keeps the arguments; nothing is read.

        Args:
            path: the file.
            name: its name in errors.
            delimiter: between the values of a line.
            budget: of the decoded size.
        """
        self._budget = budget
        self._path = path
        self._name = name
        self._delimiter = delimiter
        self._header: list[str] = []
        self._kinds: list[ColumnKind] = []

    def schema(self) -> Schema:
        """As :meth:`RowReader.schema`."""
        count = 0
        for lines in self._batches():
            count += len(lines)
            self._kinds = self._kinds or [ColumnKind() for _ in self._header]
            for kind, values in zip(self._kinds, zip(*lines, strict=True), strict=True):
                kind.add(values)
        self._budget.require_cells(count, len(self._header))
        inference = SchemaInference()
        if count:
            examples = [kind.example() for kind in self._kinds]
            inference.add([dict(zip(self._header, examples, strict=True))])
        return inference.schema()

    def batches(self, schema: Schema) -> Iterator[Batch]:
        """As :meth:`RowReader.batches`."""
        before = 0
        for lines in self._batches():
            yield columns_of(self._rows(lines, before), schema, before=before), len(lines)
            before += len(lines)

    def _rows(self, lines: Sequence[Values], before: int) -> list[Mapping[str, Any]]:
        by_column = zip(self._kinds, self._header, zip(*lines, strict=True), strict=True)
        columns = [
            kind.read(values, column, self._name, before=before)
            for kind, column, values in by_column
        ]
        return [dict(zip(self._header, row, strict=True)) for row in zip(*columns, strict=True)]

    def _batches(self) -> Iterator[list[Values]]:
        with self._path.open(encoding="utf-8", newline="", buffering=_PIECE_BYTES) as text:
            try:
                yield from self._read(text)
            except UnicodeDecodeError as e:
                line = _undecodable_line(self._path)
                where = f"{self._name}, line {line}"
                raise IdentityError("not UTF-8", where=where, remedy="convert it") from e

    def _read(self, text: TextIO) -> Iterator[list[Values]]:
        csv.field_size_limit(max(csv.field_size_limit(), ROW_BYTES_MAX))
        lines = _Lines(text, self._name)
        self._header = []
        batch: list[Values] = []
        characters = 0
        for row, line in records(lines, self._name, self._delimiter):
            characters += lines.take()
            if not self._header:
                self._header = self._checked_header([column or "" for column in row])
            elif row:
                self._require_width(row, line)
                batch.append(row)
            if len(batch) >= BATCH_ROWS or (batch and characters >= BATCH_CHARACTERS):
                yield batch
                batch, characters = [], 0
        if batch:
            yield batch

    def _checked_header(self, row: list[str]) -> list[str]:
        refuse_columns(len(row), COLUMNS_MAX)
        if len(set(row)) != len(row):
            raise IdentityError("a column is named twice", where=f"{self._name}, line 1")
        return row

    def _require_width(self, row: Values, line: int) -> None:
        if len(row) != len(self._header):
            raise IdentityError(
                f"{len(row)} values where the first line names {len(self._header)} columns",
                where=f"{self._name}, line {line}",
                remedy="quote values that contain the delimiter",
            )


class _Lines:
    """The lines of a text for ``csv.reader``, which reads on while a quote is open.

    So one row may be many lines; their sum is bounded.
    """

    def __init__(self, text: TextIO, name: str) -> None:
        self._text = text
        self._name = name
        self._number = 0
        self._taken = 0

    def take(self) -> int:
        """Returns the number of characters since the last call."""
        taken, self._taken = self._taken, 0
        return taken

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._text.readline(ROW_BYTES_MAX + 1)
        if not line:
            raise StopIteration
        self._number += 1
        self._taken += len(line)
        if self._taken > ROW_BYTES_MAX:
            raise long_row(f"{self._name}, line {self._number}")
        return line.removeprefix("\ufeff") if self._number == 1 else line


def _undecodable_line(path: Path) -> int:
    """Returns the line of the first bytes that are not UTF-8."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            try:
                line += utf8.decode(piece).count("\n")
            except UnicodeDecodeError as e:
                return line + e.object[: e.start].count(b"\n")
    return line
