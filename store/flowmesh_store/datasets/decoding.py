"""Converts rows to chunks in batches: each is read, typed, hashed, cut and released.

The control plane decodes uploads with it, large files and Parquet in a separate process. The chunks
are equal to those of :func:`flowmesh_store.datasets.rows_to_chunks`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from flowmesh_core.dataset import (
    AVERAGE_ROWS,
    ChunkRef,
    Manifest,
    RunningBorders,
    Schema,
    rows_digest,
)
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.datasets.budget import DecodeBudget
from flowmesh_store.datasets.parquet import arrow_schema, arrow_table, write_parquet
from flowmesh_store.datasets.row_identity import table_row_digests

Batch = tuple[Mapping[str, Sequence[Any]], int]
"""Typed columns, and their number of rows."""


class RowReader(Protocol):
    """Rows that are read twice: once for their types, once for their values."""

    def schema(self) -> Schema:
        """Returns the schema of all rows.

        Raises:
            IdentityError: the rows cannot be read, or have mixed types; names the place.
        """
        ...

    def batches(self, schema: Schema) -> Iterator[Batch]:
        """Yields the rows, typed by their schema, some hundred at a time.

        Raises:
            IdentityError: as :meth:`schema`.
        """
        ...


class Decoding:
    """Decodes rows into chunks, once."""

    def __init__(self, reader: RowReader, budget: DecodeBudget) -> None:
        """Keeps the arguments; nothing is read.

        Args:
            reader: the rows.
            budget: of the decoded size.
        """
        self._reader = reader
        self._budget = budget
        self.manifest = Manifest(Schema())
        """Of the data set; complete once :meth:`blobs` is exhausted."""

    def blobs(self) -> Iterator[tuple[Digest, bytes]]:
        """Yields the chunks' files in the order of the rows, each distinct content once.

        Raises:
            IdentityError: the rows cannot be read; the files so far are not a data set.
        """
        schema = self._reader.schema()
        cutter, chunks, given = ChunkCutter(schema), [], set()
        for chunk, data in self._cut(cutter, schema):
            chunks.append(chunk)
            if chunk.blob not in given:
                given.add(chunk.blob)
                yield chunk.blob, data
        self.manifest = Manifest(schema, tuple(chunks))

    def _cut(self, cutter: "ChunkCutter", schema: Schema) -> Iterator[tuple[ChunkRef, bytes]]:
        for columns, count in self._reader.batches(schema):
            table = arrow_table(columns, schema)
            self._budget.take(table)
            yield from cutter.add(columns, count, table)
        yield from cutter.end()


class ChunkCutter:
    """Cuts batches of typed rows into chunks by their content."""

    def __init__(self, schema: Schema, *, average: int = AVERAGE_ROWS) -> None:
        """Starts without rows.

        Args:
            schema: of the rows.
            average: as for :func:`rows_to_chunks`.
        """
        self._schema = schema
        self._borders = RunningBorders(average=average)
        self._table = arrow_schema(schema).empty_table()
        self._digests: list[Digest] = []
        self._before = 0

    def add(
        self, columns: Mapping[str, Sequence[Any]], count: int, table: Any
    ) -> Iterator[tuple[ChunkRef, bytes]]:
        """Adds rows; yields the chunks that are complete.

        Args:
            columns: the rows' typed columns.
            count: the number of rows.
            table: the same rows as a ``pyarrow.Table``.
        """
        digests = table_row_digests(table, columns, self._schema, count)
        self._digests += digests
        self._table = pa.concat_tables([self._table, table]).combine_chunks()
        yield from self._until(self._borders.add(digests))

    def end(self) -> Iterator[tuple[ChunkRef, bytes]]:
        """Yields the last chunks."""
        if self._digests:
            last = self._before + len(self._digests)
            yield from self._until([*self._borders.end(), last])

    def _until(self, borders: Sequence[int]) -> Iterator[tuple[ChunkRef, bytes]]:
        start = 0
        for border in borders:
            end = border - self._before
            yield self._chunk(start, end)
            start = end
        self._table = self._table.slice(start)
        del self._digests[:start]
        self._before += start

    def _chunk(self, start: int, end: int) -> tuple[ChunkRef, bytes]:
        data = write_parquet(self._table.slice(start, end - start))
        rows = rows_digest(self._digests[start:end])
        return ChunkRef(rows, digest_bytes(data), end - start, len(data)), data
