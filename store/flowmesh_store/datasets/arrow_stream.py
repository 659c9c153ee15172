"""Writes rows as an Arrow stream, which downloads send piece by piece.

A json column has Arrow's own type for JSON (``arrow.json``), which other programs know, besides our
metadata.
"""

import io
from typing import Any

import pyarrow as pa

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_store.datasets.parquet import arrow_schema


class ArrowStream:
    """Makes one stream: a part for each table of rows, then the end."""

    def __init__(self, schema: Schema) -> None:
        """Begins a stream.

        Args:
            schema: that of the rows.
        """
        self._schema = _shared_schema(schema)
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def add(self, table: Any) -> bytes:
        """Returns the next part of the stream.

        Args:
            table: rows as :func:`flowmesh_store.datasets.read_table` returns them.
        """
        columns = [_as_type(table.column(f.name), f.type) for f in self._schema]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        return self._written()

    def end(self) -> bytes:
        """Returns the last part, which readers need to know that nothing is missing."""
        self._writer.close()
        return self._written()

    def _written(self) -> bytes:
        part = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return part


def _shared_schema(schema: Schema) -> Any:
    fields = zip(arrow_schema(schema), schema.columns, strict=True)
    return pa.schema(
        [f.with_type(pa.json_()) if c.type is ColumnType.JSON else f for f, c in fields]
    )


def _as_type(column: Any, wanted: Any) -> Any:
    if column.type == wanted:
        return column
    chunks = [pa.ExtensionArray.from_storage(wanted, chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=wanted)
