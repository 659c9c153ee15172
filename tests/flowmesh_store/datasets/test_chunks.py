import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowmesh_core.dataset import ColumnType, Manifest, Schema, concat, dataset_digest
from flowmesh_core.errors import BlobCorruptError, BlobNotFoundError, IdentityError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.datasets import (
    as_single_chunk,
    read_dataset,
    read_dataset_table,
    rows_to_chunks,
)
from flowmesh_store.datasets.parquet import arrow_table, write_parquet

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.booleans() | INTEGERS | FLOATS | TEXT
VALUES = {
    ColumnType.NULL: st.none(),
    ColumnType.BOOL: st.booleans(),
    ColumnType.INT: INTEGERS,
    ColumnType.FLOAT: FLOATS,
    ColumnType.STRING: TEXT,
    ColumnType.BYTES: st.binary(max_size=5),
    ColumnType.JSON: SCALARS | st.dictionaries(TEXT.filter(str.isascii), SCALARS, max_size=3),
    ColumnType.LIST_FLOAT: st.lists(FLOATS, max_size=3),
    ColumnType.LIST_INT: st.lists(INTEGERS, max_size=3),
    ColumnType.LIST_STRING: st.lists(TEXT, max_size=3),
}
EVERY_TYPE = Schema.of({f"column {t.value}": t for t in ColumnType})
ROWS = st.lists(
    st.fixed_dictionaries({f"column {t.value}": st.none() | v for t, v in VALUES.items()}),
    max_size=40,
)


class Blobs:
    """What a store would hold; counts nothing, loses nothing."""

    def __init__(self, *parts: dict[Digest, bytes]) -> None:
        self.held = {digest: data for part in parts for digest, data in part.items()}

    async def get(self, digest: Digest) -> bytes:
        if digest not in self.held:
            raise BlobNotFoundError(f"no blob {digest}")
        return self.held[digest]


def questions(numbers: Any) -> list[dict[str, Any]]:
    return [{"id": n, "question": f"What is {n} times {n}?", "score": n / 3} for n in numbers]


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS)
async def test_rows_of_every_type_round_trip(rows: list[dict[str, Any]]) -> None:
    manifest, blobs = rows_to_chunks(rows, EVERY_TYPE)
    back = await read_dataset(Blobs(blobs).get, manifest)
    assert back == rows
    assert [[type(v) for v in r.values()] for r in back] == [
        [type(r[n]) for n in EVERY_TYPE.names] for r in rows
    ]
    assert all(digest_bytes(data) == digest for digest, data in blobs.items())


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(ROWS)
async def test_a_table_and_its_rows_give_the_same_data_set(rows: list[dict[str, Any]]) -> None:
    manifest, blobs = rows_to_chunks(rows, EVERY_TYPE)
    table = await read_dataset_table(Blobs(blobs).get, manifest)
    again, _ = rows_to_chunks(table)
    assert dataset_digest(again) == dataset_digest(manifest)
    assert table.num_rows == len(rows)


async def test_identity_comes_from_rows_and_not_from_the_file() -> None:
    rows = questions(range(100))
    manifest, _ = rows_to_chunks(rows)
    table = pa.table(
        {
            "score": pa.array([r["score"] for r in rows], pa.float64()),
            "question": pa.array([r["question"] for r in rows], pa.large_string()),
            "id": pa.array([r["id"] for r in rows], pa.int16()),
        }
    )
    other, _ = rows_to_chunks(table)
    assert dataset_digest(other) == dataset_digest(manifest)


def test_the_same_rows_give_the_same_files() -> None:
    assert rows_to_chunks(questions(range(100))) == rows_to_chunks(questions(range(100)))


async def test_a_chunk_with_only_nulls_is_read_with_the_data_sets_type() -> None:
    ours, our_blobs = as_single_chunk([{"a": 1, "b": None}])
    theirs, their_blobs = as_single_chunk([{"a": 2, "b": "x"}])
    both = concat([ours, theirs])
    assert both.schema == Schema.of({"a": "int", "b": "string"})
    table = await read_dataset_table(Blobs(our_blobs, their_blobs).get, both)
    assert table.column("b").to_pylist() == [None, "x"]


async def test_a_rowwise_output_stays_one_chunk_even_when_empty() -> None:
    manifest, blobs = as_single_chunk(questions(range(300)))
    assert [c.count for c in manifest.chunks] == [300]
    assert len(await read_dataset(Blobs(blobs).get, manifest)) == 300
    empty, empty_blobs = as_single_chunk([], Schema.of({"a": "int"}))
    assert [c.count for c in empty.chunks] == [0]
    assert await read_dataset(Blobs(empty_blobs).get, empty) == []


async def test_an_empty_list_of_rows_is_a_data_set_without_chunks() -> None:
    manifest, blobs = rows_to_chunks([], Schema.of({"a": "int"}))
    assert (manifest, blobs) == (Manifest(Schema.of({"a": "int"})), {})
    assert (await read_dataset_table(Blobs().get, manifest)).column_names == ["a"]
    assert rows_to_chunks([])[0] == Manifest(Schema())


async def test_one_row_of_five_megabytes_works() -> None:
    rows = [{"text": random.Random(1).randbytes(2_500_000).hex()}]
    manifest, blobs = rows_to_chunks(rows)
    assert await read_dataset(Blobs(blobs).get, manifest) == rows


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": pa.array([0], pa.timestamp("s"))}, r"column 'x': the type timestamp\[s\] has no"),
        (
            {"x": pa.array([2**63], pa.uint64())},
            "row 1, column 'x': 9223372036854775808 is not of type",
        ),
        ({"x": pa.array([1.0, float("nan")])}, "row 2, column 'x': nan is not of type float"),
        ({"x": pa.array([[1, None]])}, "is not of type list<int>"),
    ],
)
def test_tables_with_values_that_have_no_type_are_refused(table: Any, message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        rows_to_chunks(pa.table(table))


async def test_decimals_structs_and_maps_of_other_programs_are_read() -> None:
    table = pa.table(
        {
            "sum": pa.array([12]).cast(pa.decimal128(38, 0)),
            "mean": pa.array([1.5]).cast(pa.decimal128(10, 2)),
            "struct": pa.array([{"a": [1]}]),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "word": pa.array(["x"]).dictionary_encode(),
        }
    )
    manifest, blobs = rows_to_chunks(table)
    assert await read_dataset(Blobs(blobs).get, manifest) == [
        {"map": {"k": 1}, "mean": 1.5, "struct": {"a": [1]}, "sum": 12, "word": "x"}
    ]


async def test_a_corrupt_chunk_is_reported() -> None:
    manifest, blobs = rows_to_chunks(questions(range(10)))
    chunk = manifest.chunks[0]
    for wrong in (b"", b"PAR1", blobs[chunk.blob][:-20]):
        with pytest.raises(BlobCorruptError, match="not a Parquet file"):
            await read_dataset(Blobs({chunk.blob: wrong}).get, manifest)
    fewer = as_single_chunk(questions(range(9)))[1].popitem()[1]
    with pytest.raises(BlobCorruptError, match="a chunk has 9 rows, its manifest says 10"):
        await read_dataset(Blobs({chunk.blob: fewer}).get, manifest)
    schema = Schema.of({"id": "string"})
    other = write_parquet(arrow_table({"id": ["x"] * 10}, schema))
    with pytest.raises(BlobCorruptError, match="'id' is int in one and string in another"):
        await read_dataset(Blobs({chunk.blob: other}).get, manifest)
