"""Reads the first rows, and some columns, of a file of rows, without decoding the rest of Parquet.

Called by the import engine for inputs with ``limit`` or ``columns``.
"""

import io
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from flowmesh_core.errors import ContentLimitError, IdentityError
from flowmesh_store.datasets.files import read_rows_file
from flowmesh_store.datasets.row_readers import jsonl_rows

_BATCH_ROWS = 1024
_LINES = (".jsonl", ".ndjson")


def read_selected_rows(
    name: str,
    data: bytes,
    rows_max: int | None,
    columns: Sequence[str] | None,
    *,
    decoded_bytes_max: int,
) -> Sequence[Mapping[str, Any]] | Any:
    """Reads rows of a file in the format of its name's suffix.

    Args:
        name: the file's name; see :func:`read_rows_file`.
        data: its content.
        rows_max: how many rows to read, from the first on; None for all.
        columns: those to read; None for all.
        decoded_bytes_max: the largest decoded size of Parquet, in Arrow's memory.

    Returns:
        Rows, or for Parquet a ``pyarrow.Table``.

    Raises:
        IdentityError: an unknown suffix, content of another format, or a missing column.
        ContentLimitError: what is read of Parquet is too large when decoded.
    """
    ending = PurePath(name).suffix.lower()
    if ending == ".parquet":
        return _parquet(name, data, rows_max, columns, decoded_bytes_max)
    if ending in _LINES and rows_max is not None:
        rows = [row for row, _ in islice(jsonl_rows(io.BytesIO(data), name), rows_max)]
    else:
        rows = list(read_rows_file(name, data))[:rows_max]
    if columns is None or not rows:
        return rows
    _require_columns(columns, set().union(*rows), name)
    return [{column: row.get(column) for column in columns} for row in rows]


def _parquet(
    name: str,
    data: bytes,
    rows_max: int | None,
    columns: Sequence[str] | None,
    decoded_bytes_max: int,
) -> Any:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        schema = file.schema_arrow
        if columns is not None:
            _require_columns(columns, schema.names, name)
            schema = pa.schema([schema.field(c) for c in columns], metadata=schema.metadata)
        batches, left, size = [], rows_max, 0
        wanted = None if columns is None else list(columns)
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
            if left is not None and left <= 0:
                break
            taken = batch.slice(0, left)
            left = None if left is None else left - taken.num_rows
            size += batch.nbytes
            if size > decoded_bytes_max:
                raise ContentLimitError(
                    f"the file decodes to more than {decoded_bytes_max >> 20} MiB",
                    where=name,
                    remedy="take fewer rows with limit, or fewer columns",
                )
            batches.append(taken)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as e:
        raise IdentityError("not a Parquet file", where=name, remedy="write it again") from e
    if not batches:
        return schema.empty_table()
    table = pa.Table.from_batches(batches)
    return table if wanted is None else table.select(wanted)


def _require_columns(columns: Sequence[str], known: Sequence[str] | set[str], name: str) -> None:
    missing = next((c for c in columns if c not in known), None)
    if missing is not None:
        raise IdentityError(
            f"no column {missing!r}; there is {', '.join(sorted(known))}",
            where=name,
            remedy="correct columns",
        )
