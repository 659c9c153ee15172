"""Reads and writes chunks as Parquet files.

Types that Parquet lacks are metadata of the fields: a json column is canonical JSON in strings. The
bytes of a file are not part of any identity, because they contain the writer's version.
"""

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowmesh_core.dataset import Column, ColumnType, Schema
from flowmesh_core.errors import BlobCorruptError, IdentityError

TYPE_KEY = b"flowmesh.type"
_COUNTED_ROWS = 256
_SHOWN = 40
_END = b"PAR1"
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _NAMED = 4096, 512, 4
"""The most that our files have there: for the file, for a column, and for a byte of its name."""
_ARROW: Mapping[ColumnType, Any] = {
    ColumnType.NULL: pa.null(),
    ColumnType.BOOL: pa.bool_(),
    ColumnType.INT: pa.int64(),
    ColumnType.FLOAT: pa.float64(),
    ColumnType.STRING: pa.string(),
    ColumnType.BYTES: pa.binary(),
    ColumnType.JSON: pa.string(),
    ColumnType.LIST_FLOAT: pa.list_(pa.float64()),
    ColumnType.LIST_INT: pa.list_(pa.int64()),
    ColumnType.LIST_STRING: pa.list_(pa.string()),
}


def arrow_schema(schema: Schema) -> Any:
    """Returns the ``pyarrow.Schema`` of a data set's schema, with our types as metadata."""
    return pa.schema([_field(c) for c in schema.columns])


def arrow_table(columns: Mapping[str, Sequence[Any]], schema: Schema) -> Any:
    """Returns typed columns as a ``pyarrow.Table``."""
    arrays = [pa.array(columns[c.name], type=_ARROW[c.type]) for c in schema.columns]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(schema))


def write_parquet(table: Any) -> bytes:
    """Returns a chunk as a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_statistics=False, store_schema=True)
    return sink.getvalue()


def read_parquet(data: bytes, count: int | None = None, schema: Schema | None = None) -> Any:
    """Returns a chunk as a ``pyarrow.Table``, with our types as metadata of its fields.

    Args:
        data: the Parquet file.
        count: how many rows it must have, compared before any is decoded; None for any number.
        schema: that it must have; bounds its footer, which is decoded first.

    Raises:
        BlobCorruptError: the bytes are not a Parquet file, or have another number of rows.
    """
    if schema is not None:
        _refuse_large_footer(data, schema)
    with _refusing_others():
        file = _opened(data, count)
        table = file.read(use_threads=False)
        _require_rows(table.num_rows, count)
        return table


def decoded_sizes(data: bytes, count: int | None = None) -> Iterator[int]:
    """Yields the decoded size in bytes of the rows so far, after every few hundred rows.

    Arguments and errors are those of :func:`read_parquet`.
    """
    with _refusing_others():
        total = rows = 0
        file = _opened(data, count)
        for batch in file.iter_batches(batch_size=_COUNTED_ROWS, use_threads=False):
            for column in batch.columns:
                dictionary = pa.types.is_dictionary(column.type)
                total += column.dictionary_decode().nbytes if dictionary else column.nbytes
            rows += batch.num_rows
            if count is not None and rows > count:
                _require_rows(rows, count)
            yield total


@contextlib.contextmanager
def _refusing_others() -> Iterator[None]:
    try:
        yield
    except MemoryError:  # pyarrow's is also an ArrowException
        raise
    except (pa.ArrowException, OSError) as e:  # pyarrow raises OSError for damaged pages
        raise BlobCorruptError(f"a chunk is not a Parquet file: {e}") from e


def _opened(data: bytes, count: int | None) -> Any:
    file = pq.ParquetFile(pa.BufferReader(data))
    _require_rows(file.metadata.num_rows, count)
    return file


def _refuse_large_footer(data: bytes, schema: Schema) -> None:
    """Refuses a file whose footer says far more than the schema: a byte there becomes 170."""
    if not data.endswith(_END):
        return  # Arrow refuses it
    size = int.from_bytes(data[-2 * len(_END) : -len(_END)], "little")
    names = sum(len(name.encode()) for name in schema.names)
    if size > _FOOTER_BYTES + _FOOTER_COLUMN_BYTES * len(schema.columns) + _NAMED * names:
        raise BlobCorruptError(
            f"a chunk's footer has {size:,} bytes, too many for {len(schema.columns):,} columns"
        )


def _require_rows(found: int, count: int | None) -> None:
    if count is not None and found != count:
        raise BlobCorruptError(f"a chunk has {found} rows, its manifest says {count}")


def is_json_text(arrow_type: Any) -> bool:
    """Whether the values of an Arrow type are texts where a column is json."""
    return bool(pa.types.is_string(arrow_type) or isinstance(arrow_type, pa.JsonType))


def schema_of(table: Any) -> Schema:
    """Returns the schema of an Arrow table, by our metadata if it has it, else by Arrow's types.

    Raises:
        IdentityError: a column's type has no counterpart; names it.
    """
    return Schema.of({f.name: _column_type(f) for f in table.schema})


def _field(column: Column) -> Any:
    metadata = {TYPE_KEY: column.type.value.encode()}
    return pa.field(column.name, _ARROW[column.type], metadata=metadata)


def _column_type(field: Any) -> ColumnType:
    named = (field.metadata or {}).get(TYPE_KEY)
    if named is not None:
        try:
            return ColumnType(named.decode())
        except ValueError:  # also where it is not UTF-8
            raise IdentityError(
                f"{named[:_SHOWN]!r} is not a column type",
                where=f"column {field.name!r}, metadata {TYPE_KEY.decode()}",
                remedy=f"write the file without it, or as one of {', '.join(ColumnType)}",
            ) from None
    t = field.type
    if pa.types.is_dictionary(t):
        t = t.value_type
    if isinstance(t, pa.JsonType):
        return ColumnType.JSON
    found = _plain_type(t)
    if found is None and _is_list(t):
        return _LISTS.get(_plain_type(t.value_type), ColumnType.JSON)
    if found is None:
        raise IdentityError(
            f"the type {field.type} has no column type",
            where=f"column {field.name!r}",
            remedy="cast it to a string or a number first",
        )
    return found


_TESTS: Sequence[tuple[str, ColumnType]] = (
    ("is_null", ColumnType.NULL),
    ("is_boolean", ColumnType.BOOL),
    ("is_integer", ColumnType.INT),
    ("is_floating", ColumnType.FLOAT),
    ("is_decimal", ColumnType.FLOAT),
    ("is_string", ColumnType.STRING),
    ("is_large_string", ColumnType.STRING),
    ("is_string_view", ColumnType.STRING),
    ("is_binary", ColumnType.BYTES),
    ("is_large_binary", ColumnType.BYTES),
    ("is_fixed_size_binary", ColumnType.BYTES),
    ("is_struct", ColumnType.JSON),
    ("is_map", ColumnType.JSON),
)


_LISTS: Mapping[ColumnType | None, ColumnType] = {
    ColumnType.FLOAT: ColumnType.LIST_FLOAT,
    ColumnType.INT: ColumnType.LIST_INT,
    ColumnType.STRING: ColumnType.LIST_STRING,
}


def _plain_type(t: Any) -> ColumnType | None:
    if pa.types.is_decimal(t) and t.scale == 0:
        return ColumnType.INT
    return next((found for test, found in _TESTS if getattr(pa.types, test)(t)), None)


def _is_list(t: Any) -> bool:
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t))
