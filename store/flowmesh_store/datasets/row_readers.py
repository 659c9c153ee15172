"""Readers of rows that hold a batch of them at a time: one for each format that users bring.

What they give and refuse is what :func:`flowmesh_store.datasets.files.read_rows_file` does with the
whole file; beyond it they bound columns and the length of a row.
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
    refuse_long_integers,
    unknown_format,
)
from flowmesh_store.datasets.json_elements import json_elements
from flowmesh_store.datasets.parquet import schema_of

BATCH_ROWS = 256
BATCH_BYTES = 4 << 20
_READ_BYTES = 1 << 20

Rows = Sequence[Mapping[str, Any]]
Sized = tuple[Mapping[str, Any], int]
"""A row, and how many bytes of the file it took."""


class PiecesReader:
    """Rows as objects, whose types only all of them tell."""

    def __init__(self, pieces: Callable[[], Iterator[Rows]], budget: DecodeBudget) -> None:
        """Reads nothing yet.

        Args:
            pieces: reads the rows from the first on, some at a time.
            budget: how much they may become.
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
    """Rows of a Parquet file, whose metadata tells their types."""

    def __init__(self, path: Path, budget: DecodeBudget) -> None:
        """Reads the file's metadata.

        Raises:
            IdentityError: it is no Parquet file.
            ContentLimitError: it has too many columns, or its metadata says too much.
        """
        self._budget = budget
        try:
            # With a buffer of its own the reader holds pages, not whole columns of a row group.
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
        """Refuses by what the metadata says, before a page is read."""
        metadata = self._file.metadata
        cells = 0
        for i in range(metadata.num_row_groups):
            group = metadata.row_group(i)
            cells += group.num_rows * max(1, len(self._schema))
            self._budget.require(max(cells, group.total_byte_size), f"row group {i + 1}")


def reader_of(name: str, path: Path, budget: DecodeBudget) -> RowReader:
    """The reader of a file, by its name's ending.

    Raises:
        IdentityError: there is none for the ending, or the file cannot be read.
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
    """The reader of rows that are in memory already."""

    def pieces() -> Iterator[Rows]:
        for start in range(0, len(rows), BATCH_ROWS):
            yield rows[start : start + BATCH_ROWS]

    return PiecesReader(pieces, budget)


def jsonl_rows(file: BinaryIO, name: str) -> Iterator[Sized]:
    """Rows of a JSON Lines file with their sizes; blank lines are skipped.

    Raises:
        IdentityError: names the line that is no JSON object, or is too long.
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
    """Rows of a JSON file that holds a list of objects, with their sizes.

    Raises:
        IdentityError: names the line of a syntax error, or the row that is no object.
    """
    for number, (text, line) in enumerate(json_elements(file, name), 1):
        where = f"{name}, row {number}"
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as e:
            raise no_json(e, f"{name}, line {line + e.lineno - 1}", LIST_REMEDY) from e
        refuse_long_integers(text, where)
        yield json_object(row, where), len(text)


def _opened(
    path: Path, name: str, read: Callable[[BinaryIO, str], Iterator[Sized]]
) -> Iterator[Sized]:
    with path.open("rb", buffering=_READ_BYTES) as file:
        yield from read(file, name)


def _batched(rows: Iterable[Sized]) -> Iterator[Rows]:
    """Batches that are small in rows and in bytes."""
    batch: list[Mapping[str, Any]] = []
    held = 0
    for row, size in rows:
        batch.append(row)
        held += size
        if len(batch) >= BATCH_ROWS or held >= BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _no_parquet(name: str) -> IdentityError:
    return IdentityError("no Parquet file", where=name, remedy="write it again")
