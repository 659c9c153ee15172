"""Reads chunks and compares their rows with their identity.

A chunk's blob is verified by its own digest; that it holds the rows that the manifest names is
another question, and whoever computes from the rows asks it here. Workers remember the answers, so
that each asks once (``flowmesh_worker.data.verified_chunks``).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowmesh_core.dataset import ChunkRef, Manifest, Schema, rows_digest
from flowmesh_core.errors import BlobCorruptError, IdentityError, IdentityMismatchError
from flowmesh_core.units import Digest
from flowmesh_store.datasets.budget import refuse_large_chunk
from flowmesh_store.datasets.chunks import decode_json, read_table
from flowmesh_store.datasets.parquet import arrow_schema
from flowmesh_store.datasets.row_identity import table_row_digests

Fetch = Callable[[Digest], Awaitable[bytes]]
"""Reads a blob into memory, e.g. ``BlobStore.get``."""

_UNFIT = (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError)
"""What reading values that no schema has may raise."""


def read_verified_table(data: bytes, schema: Schema, chunk: ChunkRef) -> Any:
    """Returns a chunk as :func:`read_table`, after comparing its rows with their identity.

    Args:
        data: the Parquet file, whose digest was verified.
        schema: the data set's.
        chunk: says how many rows there are, and their digest.

    Raises:
        IdentityMismatchError: it has other rows; names the blob.
    """
    return _verified(data, schema, chunk)[0]


def read_verified_rows(data: bytes, schema: Schema, chunk: ChunkRef) -> list[dict[str, Any]]:
    """Returns a chunk as rows, after comparing them with their identity.

    Arguments and errors are those of :func:`read_verified_table`.
    """
    table, rows = _verified(data, schema, chunk)
    decode_json(rows, table)
    return rows


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
        rows += read_verified_rows(await fetch(chunk.blob), manifest.schema, chunk)
    return rows


async def read_dataset_table(fetch: Fetch, manifest: Manifest) -> Any:
    """Returns all rows of a data set as a ``pyarrow.Table``; json columns are canonical strings.

    Arguments and errors are those of :func:`read_dataset`.
    """
    schema = manifest.schema
    tables = [read_verified_table(await fetch(c.blob), schema, c) for c in manifest.chunks]
    return pa.concat_tables(tables) if tables else arrow_schema(schema).empty_table()


def _verified(data: bytes, schema: Schema, chunk: ChunkRef) -> tuple[Any, list[dict[str, Any]]]:
    """Returns a chunk's table and the same as rows, json as text, if they are the manifest's."""
    try:
        refuse_large_chunk(chunk.count, len(schema.columns))
        table = read_table(data, schema, chunk.count if schema.columns else None)
        rows = table.to_pylist()
        found = _rows_digest(table, rows, schema, chunk.count)
    except MemoryError:  # pyarrow's is also an ArrowException
        raise
    except (BlobCorruptError, IdentityError) as e:
        raise IdentityMismatchError(e.message, chunk.blob) from e
    except _UNFIT as e:
        raise IdentityMismatchError(f"a chunk cannot be read: {e}", chunk.blob) from e
    if found != chunk.rows:
        raise IdentityMismatchError("the rows of a chunk are not those of its identity", chunk.blob)
    return table, rows


def _rows_digest(table: Any, rows: Sequence[Mapping[str, Any]], schema: Schema, count: int) -> str:
    """Returns the digest of a table's rows, whose values must be as they were written."""
    columns = {name: [row[name] for row in rows] for name in schema.names}
    return rows_digest(table_row_digests(table, columns, schema, count))
