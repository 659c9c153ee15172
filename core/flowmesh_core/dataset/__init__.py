"""Data sets without their bytes: schemas, row digests, chunk borders, manifests, reductions."""

from flowmesh_core.dataset.chunking import AVERAGE_ROWS, borders
from flowmesh_core.dataset.columns import Columns, columns_of, rows_of, typed_column
from flowmesh_core.dataset.infer import SchemaInference, infer_schema
from flowmesh_core.dataset.manifest import (
    ChunkRef,
    Manifest,
    concat,
    dataset_digest,
    decode_manifest,
    decode_manifest_of,
    encode_manifest,
)
from flowmesh_core.dataset.reductions import reduce_metrics
from flowmesh_core.dataset.rows import (
    row_digest,
    row_digests,
    row_digests_of_forms,
    rows_digest,
)
from flowmesh_core.dataset.running_borders import RunningBorders
from flowmesh_core.dataset.schema import Column, ColumnType, Schema, merge_schemas

__all__ = [
    "AVERAGE_ROWS",
    "ChunkRef",
    "Column",
    "ColumnType",
    "Columns",
    "Manifest",
    "RunningBorders",
    "Schema",
    "SchemaInference",
    "borders",
    "columns_of",
    "concat",
    "dataset_digest",
    "decode_manifest",
    "decode_manifest_of",
    "encode_manifest",
    "infer_schema",
    "merge_schemas",
    "reduce_metrics",
    "row_digest",
    "row_digests",
    "row_digests_of_forms",
    "rows_digest",
    "rows_of",
    "typed_column",
]
