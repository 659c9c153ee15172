"""Attacker: T1, a tenant's rows; T3, a worker's chunks; T4, what code and queries return.
Action: rows that have hardly a value, of very many columns; a small file of very many nulls.
Must not happen: the engine host, or the control plane, grows by gigabytes or works for minutes.
"""

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.attacks.growth import bounded_growth

from flowmesh_core.dataset import ChunkRef, ColumnType, Manifest, Schema
from flowmesh_core.errors import AttemptError, FailureKind, IdentityMismatchError
from flowmesh_core.identity import digest_bytes
from flowmesh_store.datasets import read_verified_rows, rows_to_chunks
from flowmesh_store.datasets.budget import (
    CHUNK_ROWS_MAX,
    CHUNK_VALUES_MAX,
    COLUMNS_MAX,
    NULLS_MAX,
)
from flowmesh_worker.engine_api import DatasetInput, Rows
from flowmesh_worker.host.results import prepare_outputs
from flowmesh_worker.host.work import AttemptDir

NAMES = [f"c{n}" for n in range(COLUMNS_MAX)]
SPARSE = NULLS_MAX // COLUMNS_MAX + 1000
SIXTEENTH = 16


def sparse(count: int) -> list[dict[str, int]]:
    """Rows of one value each, in all columns one after the other."""
    return [{NAMES[n % COLUMNS_MAX]: n} for n in range(count)]


def of_code() -> Rows:
    return Rows(sparse(SPARSE))


def of_a_query() -> Rows:
    return Rows(pa.table([pa.nulls(SPARSE)] * COLUMNS_MAX, NAMES))


def typed() -> Rows:
    return Rows(sparse(SPARSE), Schema.of(dict.fromkeys(NAMES, ColumnType.INT)))


@pytest.mark.parametrize("output", [of_code, of_a_query, typed])
async def test_no_step_returns_very_many_nulls(output: Callable[[], Rows], tmp_path: Path) -> None:
    directory, rows = AttemptDir(str(tmp_path / "attempt")), output()
    with bounded_growth(), pytest.raises(AttemptError, match="all others are null") as refused:
        await prepare_outputs({"rows": rows}, "", directory)
    assert refused.value.failure.kind == FailureKind.BAD_INPUT
    assert "leave out columns" in refused.value.failure.remedy


@pytest.mark.parametrize("output", [of_code, of_a_query])
async def test_a_step_returns_some(output: Callable[[], Rows], tmp_path: Path) -> None:
    some = output().rows[:256]
    prepared = await prepare_outputs({"rows": Rows(some)}, "", AttemptDir(str(tmp_path / "a")))
    manifest = prepared["rows"].manifest
    assert manifest is not None
    assert manifest.row_count == len(some)


def test_nulls_are_as_many_as_values_allow() -> None:
    """Rows of which one cell in sixteen has a value are never refused."""
    columns = [f"c{n}" for n in range(SIXTEENTH)]
    table = pa.table({c: pa.nulls(2, pa.int64()) for c in columns[1:]} | {"c0": [1, 2]})
    manifest, _ = rows_to_chunks(table)
    assert manifest.row_count == 2


def forged(rows: int, columns: int) -> tuple[Manifest, bytes]:
    """A file of nulls, which takes some kilobytes whatever its rows are."""
    sink = io.BytesIO()
    names = NAMES[:columns]
    pq.write_table(pa.table([pa.nulls(rows)] * columns, names), sink, compression="zstd")
    data = sink.getvalue()
    chunk = ChunkRef(digest_bytes(b"rows"), digest_bytes(data), rows, len(data))
    return Manifest(Schema.of(dict.fromkeys(names, ColumnType.NULL)), (chunk,)), data


@pytest.mark.parametrize(
    ("rows", "columns"), [(CHUNK_ROWS_MAX + 1, 1), (CHUNK_ROWS_MAX, 100), (10_000_000, 4)]
)
def test_no_reader_decodes_a_chunk_of_very_many_nulls(rows: int, columns: int) -> None:
    manifest, data = forged(rows, columns)
    with bounded_growth(), pytest.raises(IdentityMismatchError, match="expected at most"):
        DatasetInput(manifest, (data,)).rows()


def test_the_largest_chunk_of_nulls_is_decoded_within_the_bound() -> None:
    rows = CHUNK_ROWS_MAX
    manifest, data = forged(rows, CHUNK_VALUES_MAX // rows)
    with bounded_growth(), pytest.raises(IdentityMismatchError, match="not those of its identity"):
        read_verified_rows(data, manifest.schema, manifest.chunks[0])


def test_no_reader_decodes_a_footer_of_very_many_columns() -> None:
    """Each column takes seven bytes there, and more than a kilobyte in memory."""
    manifest, _ = forged(1, 1)
    _, data = forged(1, COLUMNS_MAX)
    with pytest.raises(IdentityMismatchError, match="footer"):
        DatasetInput(manifest, (data,)).rows()
    honest, blobs = rows_to_chunks([dict.fromkeys(NAMES, "x")])
    assert len(DatasetInput(honest, tuple(blobs.values())).rows()) == 1
