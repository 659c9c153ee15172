"""Converts rows to chunks and back.

Engines and imports pass rows or an Arrow table and store the blobs that are returned; readers get
rows or tables, typed by the manifest's schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from flowmesh_core.dataset import (
    AVERAGE_ROWS,
    ChunkRef,
    Column,
    ColumnType,
    Manifest,
    Schema,
    borders,
    columns_of,
    merge_schemas,
    rows_digest,
    typed_column,
)
from flowmesh_core.dataset.infer import infer_schema, refuse_columns
from flowmesh_core.dataset.schema import column_name
from flowmesh_core.errors import BlobCorruptError, IdentityError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.datasets.budget import COLUMNS_MAX, refuse_large_chunk, refuse_nulls
from flowmesh_store.datasets.exact_numbers import exact_float
from flowmesh_store.datasets.parquet import (
    arrow_schema,
    arrow_table,
    is_json_text,
    read_parquet,
    schema_of,
    write_parquet,
)
from flowmesh_store.datasets.row_identity import table_row_digests

Row = Mapping[str, Any]
Blobs = dict[Digest, bytes]


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows by column and as a table, typed and normalised, with their digests."""

    schema: Schema
    columns: Mapping[str, list[Any]]
    table: Any = field(repr=False)
    count: int
    digests: list[Digest] = field(repr=False)


def rows_to_chunks(
    rows: Sequence[Row] | Any, schema: Schema | None = None, *, average: int = AVERAGE_ROWS
) -> tuple[Manifest, Blobs]:
    """Cuts rows into chunks by their content.

    Args:
        rows: objects, or a ``pyarrow.Table``.
        schema: the columns' types; inferred from the rows where None.
        average: the average number of rows per chunk.

    Returns:
        The manifest and the Parquet files by digest; no files without rows.

    Raises:
        IdentityError: mixed or unknown types; names row and column.
        ContentLimitError: there are too many columns, or nulls.
    """
    typed = type_rows(rows, schema)
    starts = borders(typed.digests, average=average)
    spans = zip(starts, [*starts[1:], typed.count], strict=True) if starts else ()
    return _pack(typed, list(spans))


def as_single_chunk(
    rows: Sequence[Row] | Any, schema: Schema | None = None
) -> tuple[Manifest, Blobs]:
    """Stores rows as one chunk, for the output of a row-wise step from one chunk of its input.

    Arguments and errors are those of :func:`rows_to_chunks`; too many rows for one chunk are
    refused too. Without rows there is an empty chunk.
    """
    typed = type_rows(rows, schema)
    refuse_large_chunk(typed.count, len(typed.schema.columns))
    return _pack(typed, [(0, typed.count)])


def rows_schema(rows: Sequence[Row] | Any) -> Schema:
    """Returns the schema of rows, or of a ``pyarrow.Table``, without typing their values.

    Raises:
        IdentityError: a column mixes types, or has one without a counterpart.
    """
    return schema_of(rows) if isinstance(rows, pa.Table) else infer_schema(rows)


def type_rows(rows: Sequence[Row] | Any, schema: Schema | None = None) -> TypedRows:
    """Types rows by a schema, which is inferred from their values where None, and hashes them.

    Raises:
        IdentityError, ContentLimitError: as :func:`rows_to_chunks`.
    """
    if isinstance(rows, pa.Table):
        refuse_columns(rows.num_columns, COLUMNS_MAX)
        nulls = sum(column.null_count for column in rows.columns)
        refuse_nulls(rows.num_rows, rows.num_columns, rows.num_rows * rows.num_columns - nulls)
        schema, columns = columns_of_table(rows, schema)
        count = rows.num_rows
    else:
        names = set().union(*rows) if schema is None else schema.names
        refuse_columns(len(names), COLUMNS_MAX)
        refuse_nulls(len(rows), len(names), sum(map(len, rows)))
        schema = infer_schema(rows) if schema is None else schema
        columns, count = columns_of(rows, schema), len(rows)
    table = arrow_table(columns, schema)
    digests = table_row_digests(table, columns, schema, count)
    return TypedRows(schema, columns, table, count, digests)


def read_table(data: bytes, schema: Schema | None = None, count: int | None = None) -> Any:
    """Returns a chunk as a ``pyarrow.Table``; json columns are canonical strings.

    Args:
        data: the Parquet file.
        schema: the data set's; a chunk whose column has only nulls does not have its type.
        count: how many rows it must have; None for any number.

    Raises:
        BlobCorruptError: not a Parquet file, of another schema, or with other rows.
    """
    table = read_parquet(data, count, schema)
    if schema is None:
        return table
    try:
        merge_schemas([schema, schema_of(table)])
    except IdentityError as e:
        raise BlobCorruptError(f"a chunk is not of its dataset's schema: {e.message}") from e
    if sorted(table.column_names) != sorted(schema.names):  # one twice, or not in NFC
        raise BlobCorruptError("a chunk has not the columns of its dataset, each once")
    wanted = arrow_schema(schema)
    return pa.table([table.column(f.name).cast(f.type) for f in wanted], schema=wanted)


def read_rows(data: bytes, schema: Schema | None = None) -> list[dict[str, Any]]:
    """Returns a chunk as rows; arguments and errors are those of :func:`read_table`."""
    return table_rows(read_table(data, schema))


def table_rows(table: Any) -> list[dict[str, Any]]:
    """Returns an Arrow table as rows; columns that are json by our metadata are decoded."""
    rows: list[dict[str, Any]] = table.to_pylist()
    decode_json(rows, table)
    return rows


def decode_json(rows: list[dict[str, Any]], table: Any) -> None:
    """Decodes the columns of a table's rows that are json by our metadata."""
    types = schema_of(table).types()
    names = [f.name for f in table.schema if types[f.name] is ColumnType.JSON]
    ours = [n for n in names if is_json_text(table.schema.field(n).type)]
    for name in ours:
        for row in rows:
            if row[name] is not None:
                row[name] = orjson.loads(row[name])


def _pack(typed: TypedRows, spans: Sequence[tuple[int, int]]) -> tuple[Manifest, Blobs]:
    blobs: Blobs = {}
    chunks = []
    for start, end in spans:
        data = write_parquet(typed.table.slice(start, end - start))
        blob = digest_bytes(data)
        blobs[blob] = data
        rows = rows_digest(typed.digests[start:end])
        chunks.append(ChunkRef(rows=rows, blob=blob, count=end - start, bytes=len(data)))
    return Manifest(typed.schema, tuple(chunks)), blobs


def columns_of_table(
    table: Any, schema: Schema | None, *, before: int = 0
) -> tuple[Schema, dict[str, list[Any]]]:
    """Returns the schema and the typed columns of a ``pyarrow.Table``.

    Args:
        table: the rows.
        schema: the columns' types; from Arrow's types where None.
        before: the number of earlier rows of the same data set, for errors.

    Raises:
        IdentityError: a value does not fit, or the columns are not the schema's.
    """
    found = schema_of(table)
    wanted = found if schema is None else schema
    fields = {column_name(f.name): f.name for f in table.schema}
    missing = sorted(set(wanted.names) ^ fields.keys())
    if missing:
        raise IdentityError(f"the table and the schema differ in {', '.join(map(repr, missing))}")
    columns: dict[str, list[Any]] = {}
    for c in wanted.columns:
        values = _values(table.column(fields[c.name]), c, before)
        columns[c.name] = typed_column(values, c, before=before)
    return wanted, columns


def _floats_of_decimals(values: Sequence[Any], column: Column, before: int) -> list[float | None]:
    floats = [None if v is None else exact_float(str(v)) for v in values]
    for number, (value, found) in enumerate(zip(values, floats, strict=True), before + 1):
        if found is None and value is not None:
            raise IdentityError(
                f"the number {value} has more digits than a float",
                where=f"row {number}, column {column.name!r}",
                remedy="round it, or cast the column to a string or a double first",
            )
    return floats


def _values(array: Any, column: Column, before: int) -> list[Any]:
    t = array.type
    if pa.types.is_decimal(t) and column.type is ColumnType.FLOAT:
        return _floats_of_decimals(array.to_pylist(), column, before)
    if pa.types.is_decimal(t) or pa.types.is_float16(t):
        target = pa.int64() if column.type is ColumnType.INT else pa.float64()
        try:
            array = array.cast(target)
        except pa.ArrowInvalid as e:
            raise IdentityError(
                f"a value is not of type {column.type} ({e})",
                where=f"column {column.name!r}",
                remedy="cast it to a string or a double first",
            ) from e
    try:
        values: list[Any] = array.to_pylist()
        if column.type is ColumnType.JSON and is_json_text(t):
            return [v if v is None else orjson.loads(v) for v in values]
    except ValueError as e:
        raise IdentityError(
            f"a value is not {'JSON' if isinstance(e, orjson.JSONDecodeError) else 'UTF-8'} ({e})",
            where=f"column {column.name!r}",
            remedy="write the file again",
        ) from e
    if column.type is ColumnType.JSON and pa.types.is_map(t):
        return [v if v is None else dict(v) for v in values]
    return values
