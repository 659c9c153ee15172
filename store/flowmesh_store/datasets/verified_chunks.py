"""Reads chunks and compares their rows with their identity.

A chunk's blob is verified by its own digest; that it holds the rows that the manifest names is
another question, and whoever computes from the rows asks it here. Workers remember the answers, so
that each asks once (``flowmesh_worker.data.verified_chunks``).
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowmesh_core.dataset import (
    ChunkRef,
    ColumnType,
    Manifest,
    Schema,
    row_digests,
    rows_digest,
)
from flowmesh_core.errors import BlobCorruptError, IdentityError, IdentityMismatchError
from flowmesh_core.units import Digest
from flowmesh_store.datasets.chunks import read_table, table_rows
from flowmesh_store.datasets.parquet import arrow_schema

Fetch = Callable[[Digest], Awaitable[bytes]]
"""Reads a blob into memory, e.g. ``BlobStore.get``."""

_FLOATS = frozenset({ColumnType.FLOAT, ColumnType.LIST_FLOAT})
_EMPTY_ROWS_MAX = 1 << 20
"""Rows without columns have no bytes, so nothing else bounds their number."""


def read_verified_table(data: bytes, schema: Schema, chunk: ChunkRef) -> Any:
    """Returns a chunk as :func:`read_table`, after comparing its rows with their identity.

    Args:
        data: the Parquet file, whose digest was verified.
        schema: the data set's.
        chunk: says how many rows there are, and their digest.

    Raises:
        IdentityMismatchError: it has other rows; names the blob.
    """
    try:
        table = read_table(data, schema)
        found = _rows_digest(table, schema, chunk.count)
    except MemoryError:  # pyarrow's is also an ArrowException
        raise
    except (BlobCorruptError, IdentityError) as e:
        raise IdentityMismatchError(e.message, chunk.blob) from e
    except (pa.ArrowException, TypeError, ValueError) as e:  # values that no schema has
        raise IdentityMismatchError(f"a chunk cannot be read: {e}", chunk.blob) from e
    if found != chunk.rows:
        raise IdentityMismatchError("the rows of a chunk are not those of its identity", chunk.blob)
    return table


async def read_dataset(fetch: Fetch, manifest: Manifest) -> list[dict[str, Any]]:
    """Returns all rows of a data set in order.

    Args:
        fetch: reads a blob by its digest.
        manifest: of the data set.

    Raises:
        BlobNotFoundError, BlobCorruptError, IdentityMismatchError, StoreUnavailableError.
    """
    rows: list[dict[str, Any]] = []
    for chunk in manifest.chunks:
        rows.extend(table_rows(await _fetched(fetch, manifest.schema, chunk)))
    return rows


async def read_dataset_table(fetch: Fetch, manifest: Manifest) -> Any:
    """Returns all rows of a data set as a ``pyarrow.Table``; json columns are canonical strings.

    Arguments and errors are those of :func:`read_dataset`.
    """
    tables = [await _fetched(fetch, manifest.schema, c) for c in manifest.chunks]
    return pa.concat_tables(tables) if tables else arrow_schema(manifest.schema).empty_table()


async def _fetched(fetch: Fetch, schema: Schema, chunk: ChunkRef) -> Any:
    return read_verified_table(await fetch(chunk.blob), schema, chunk)


def _rows_digest(table: Any, schema: Schema, count: int) -> str:
    """Returns the digest of a table's rows, whose values must be as they were written."""
    is_other = bool(schema.columns) and table.num_rows != count
    if is_other or count > _EMPTY_ROWS_MAX:
        raise IdentityError(f"a chunk has {table.num_rows} rows, its manifest says {count}")
    columns = {name: table.column(name).to_pylist() for name in schema.names}
    if _has_negative_zero(columns, schema):
        raise IdentityError("a chunk has the number -0.0, which is not written")
    return rows_digest(row_digests(columns, schema, count))


def _has_negative_zero(columns: Mapping[str, list[Any]], schema: Schema) -> bool:
    """Whether a float is -0.0, whose digest is that of 0.0."""
    return any(
        _negative_zero_in(values)
        if column.type is ColumnType.FLOAT
        else any(map(_negative_zero_in, filter(None, values)))
        for column in schema.columns
        if column.type in _FLOATS and (values := columns[column.name])
    )


def _negative_zero_in(numbers: Sequence[Any]) -> bool:
    return 0.0 in numbers and any(x == 0.0 and math.copysign(1.0, x) < 0.0 for x in numbers)
