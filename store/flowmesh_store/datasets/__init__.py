"""Data sets: rows to Parquet chunks and back, and files of rows in the formats of users."""

from flowmesh_store.datasets.chunks import (
    Blobs,
    TypedRows,
    as_single_chunk,
    read_rows,
    read_table,
    rows_schema,
    rows_to_chunks,
    table_rows,
    type_rows,
)
from flowmesh_store.datasets.files import (
    read_csv,
    read_json,
    read_jsonl,
    read_rows_file,
    rows_to_jsonl,
)
from flowmesh_store.datasets.selected_rows import read_selected_rows
from flowmesh_store.datasets.verified_chunks import (
    Fetch,
    read_dataset,
    read_dataset_table,
    read_verified_rows,
    read_verified_table,
)

__all__ = [
    "Blobs",
    "Fetch",
    "TypedRows",
    "as_single_chunk",
    "read_csv",
    "read_dataset",
    "read_dataset_table",
    "read_json",
    "read_jsonl",
    "read_rows",
    "read_rows_file",
    "read_selected_rows",
    "read_table",
    "read_verified_rows",
    "read_verified_table",
    "rows_schema",
    "rows_to_chunks",
    "rows_to_jsonl",
    "table_rows",
    "type_rows",
]
