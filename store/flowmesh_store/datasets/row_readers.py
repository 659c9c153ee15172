"""Readers that read files of rows in batches, one for each format.

They return and refuse the same as :func:`flowmesh_store.datasets.files.read_rows_file`, which reads
whole files; in addition they bound the number of columns and the length of a row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from flowmesh_core.dataset import Schema, SchemaInference, columns_of
from flowmesh_core.dataset.infer import refuse_columns
from flowmesh_core.errors import IdentityError
from flowmesh_store.datasets.budget import COLUMNS_MAX, ROW_BYTES_MAX, DecodeBudget, long_row
from flowmesh_store.datasets.chunks import columns_of_table
from flowmesh_store.datasets.csv_rows import CsvReader
from flowmesh_store.datasets.decoding import Batch, RowReader
from flowmesh_store.datasets.files import (
    LIST_REMEDY,
    json_object,
    jsonl_row,
    no_json,
    unknown_format,
)
from flowmesh_store.datasets.json_elements import json_elements
from flowmesh_store.datasets.lossless_json import refuse_losses
from flowmesh_store.datasets.parquet import schema_of

BATCH_ROWS = 256
BATCH_BYTES = 4 << 20
_READ_BYTES = 1 << 20

Rows = Sequence[Mapping[str, Any]]
Sized = tuple[Mapping[str, Any], int]
"""A row, and its size in the file in bytes."""


class PiecesReader:
    """Rows as objects; all must be read to infer their types."""

    def __init__(self, pieces: Callable[[], Iterator[Rows]], budget: DecodeBudget) -> None:
        """Keeps the arguments; nothing is read.

        Args:
            pieces: starts reading the rows from the first, in batches.
            budget: of the decoded size.
        """
        self._pieces = pieces
        self._budget = budget

    def schema(self) -> Schema:
        """As :meth:`RowReader.schema`."""
        inference = SchemaInference(columns_max=COLUMNS_MAX)
        count = 0
        for rows in self._pieces():
            inference.add(rows)
            count += len(rows)
        schema = inference.schema()
        self._budget.require_cells(count, len(schema.columns))
        return schema

    def batches(self, schema: Schema) -> Iterator[Batch]:
        """As :meth:`RowReader.batches`."""
        before = 0
        for rows in self._pieces():
            yield columns_of(rows, schema, before=before), len(rows)
            before += len(rows)


class ParquetReader:
    """Rows of a Parquet file, whose metadata has their types."""

    def __init__(self, path: Path, budget: DecodeBudget) -> None:
        """Reads the file's metadata.

        Raises:
            IdentityError: it is not a Parquet file.
            ContentLimitError: it has too many columns, or exceeds the budget by its metadata.
        """
        self._budget = budget
        try:
            # With a buffer size the reader reads pages, not whole columns of a row group.
            self._file = pq.ParquetFile(path, buffer_size=_READ_BYTES, pre_buffer=False)
            self._schema = self._file.schema_arrow
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as e:
            raise _no_parquet(budget.name) from e
        refuse_columns(len(self._schema), COLUMNS_MAX)
        self._refuse_announced()

    def schema(self) -> Schema:
        """As :meth:`RowReader.schema`."""
        return schema_of(self._schema.empty_table())

    def batches(self, schema: Schema) -> Iterator[Batch]:
        """As :meth:`RowReader.batches`."""
        before = 0
        try:
            for batch in self._file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                self._budget.require(batch.nbytes, f"what follows row {before}")
                table = pa.Table.from_batches([batch])
                yield columns_of_table(table, schema, before=before)[1], table.num_rows
                before += table.num_rows
        except MemoryError:
            raise
        except (pa.ArrowException, OSError) as e:
            raise _no_parquet(self._budget.name) from e

    def _refuse_announced(self) -> None:
        """Refuses a file by its metadata, before a page is read."""
        metadata = self._file.metadata
        cells = 0
        for i in range(metadata.num_row_groups):
            group = metadata.row_group(i)
            cells += group.num_rows * max(1, len(self._schema))
            self._budget.require(max(cells, group.total_byte_size), f"row group {i + 1}")


def reader_of(name: str, path: Path, budget: DecodeBudget) -> RowReader:
    """Returns the reader of a file, by its name's suffix.

    Raises:
        IdentityError: the suffix is unknown, or the file cannot be read.
    """
    ending = PurePath(name).suffix.lower()
    match ending:
        case ".parquet":
            return ParquetReader(path, budget)
        case ".jsonl" | ".ndjson":
            return PiecesReader(lambda: _batched(_opened(path, name, jsonl_rows)), budget)
        case ".json":
            return PiecesReader(lambda: _batched(_opened(path, name, json_rows)), budget)
        case ".csv":
            return CsvReader(path, name, ",", budget)
        case ".tsv":
            return CsvReader(path, name, "\t", budget)
    raise unknown_format(name)


def reader_of_rows(rows: Rows, budget: DecodeBudget) -> RowReader:
    """Returns a reader of rows that are in memory."""

    def pieces() -> Iterator[Rows]:
        for start in range(0, len(rows), BATCH_ROWS):
            yield rows[start : start + BATCH_ROWS]

    return PiecesReader(pieces, budget)


def jsonl_rows(file: BinaryIO, name: str) -> Iterator[Sized]:
    """Yields the rows of a JSON Lines file with their sizes; blank lines are skipped.

    Raises:
        IdentityError: a line is not a JSON object, or too long; names it.
    """
    number = 0
    while line := file.readline(ROW_BYTES_MAX + 1):
        number += 1
        if len(line) > ROW_BYTES_MAX:
            raise long_row(f"{name}, line {number}")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.removesuffix(b"\n")
        if line.strip():
            yield jsonl_row(line, f"{name}, line {number}"), len(line)


def json_rows(file: BinaryIO, name: str) -> Iterator[Sized]:
    """Yields the rows of a JSON file that is a list of objects, with their sizes.

    Raises:
        IdentityError: names the line of a syntax error, or the row that is not an object.
    """
    for number, (text, line) in enumerate(json_elements(file, name), 1):
        where = f"{name}, row {number}"
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as e:
            raise no_json(e, f"{name}, line {line + e.lineno - 1}", LIST_REMEDY) from e
        refuse_losses(text, row, where)
        yield json_object(row, where), len(text)


def _opened(
    path: Path, name: str, read: Callable[[BinaryIO, str], Iterator[Sized]]
) -> Iterator[Sized]:
    with path.open("rb", buffering=_READ_BYTES) as file:
        yield from read(file, name)


def _batched(rows: Iterable[Sized]) -> Iterator[Rows]:
    """Yields batches that are bounded in rows and in bytes."""
    batch: list[Mapping[str, Any]] = []
    size_bytes = 0
    for row, size in rows:
        batch.append(row)
        size_bytes += size
        if len(batch) >= BATCH_ROWS or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _no_parquet(name: str) -> IdentityError:
    return IdentityError("not a Parquet file", where=name, remedy="write it again")
