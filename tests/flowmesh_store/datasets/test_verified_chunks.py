"""Rows are read as what their identity says, or not at all."""

import asyncio
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.dataset import (
    Manifest,
    Schema,
    dataset_digest,
    decode_manifest_of,
    encode_manifest,
)
from flowmesh_core.errors import IdentityMismatchError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.units import Digest
from flowmesh_store.datasets import as_single_chunk, read_dataset, rows_to_chunks
from flowmesh_store.datasets.parquet import arrow_schema, write_parquet

VALUES = {
    "int": st.integers(-5, 5),
    "float": st.sampled_from([0.0, 1.0, 1.5, 1e-9, 1e300]),
    "string": st.sampled_from(["", "a", "1", "é"]),
    "json": st.sampled_from([{"b": 1, "a": [1.0]}, {}, {"b": -1.5}]),
    "bytes": st.sampled_from([b"", b"a", b"\x00"]),
    "list<float>": st.lists(st.sampled_from([0.0, 0.25, 1e-9]), max_size=3),
}
TYPES = st.sampled_from(sorted(VALUES))


@st.composite
def data_sets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of at most two columns, with nulls."""
    schema = draw(st.dictionaries(st.sampled_from("ab"), TYPES, min_size=1))
    row = st.fixed_dictionaries({n: st.none() | VALUES[t] for n, t in schema.items()})
    return draw(st.lists(row, min_size=1, max_size=12))


class Blobs:
    def __init__(self) -> None:
        self.all: dict[Digest, bytes] = {}

    def put(self, rows: list[dict[str, Any]]) -> Manifest:
        manifest, blobs = rows_to_chunks(rows, average=4)
        self.all |= blobs
        return manifest

    async def get(self, digest: Digest) -> bytes:
        return self.all[digest]


def read(blobs: Blobs, manifest: bytes, identity: Digest) -> list[dict[str, Any]]:
    """What a worker does with a data set whose manifest is in a blob."""
    decoded = decode_manifest_of(manifest, identity, digest_bytes(manifest))
    return asyncio.run(read_dataset(blobs.get, decoded))


def swapped(draw: st.DrawFn, honest: Manifest, other: Manifest) -> Manifest:
    """The honest manifest with some values of another one, or in another order."""
    pool = [*honest.chunks, *other.chunks]
    changed = []
    names = st.sets(st.sampled_from(["blob", "rows", "count", "bytes"]), max_size=2)
    for chunk in honest.chunks:
        values = {n: getattr(draw(st.sampled_from(pool)), n) for n in draw(names)}
        changed.append(msgspec.structs.replace(chunk, **values))
    if draw(st.booleans()):
        changed = draw(st.permutations(changed))
    schema = draw(st.sampled_from([honest.schema, other.schema]))
    return Manifest(schema, tuple(changed))


@settings(max_examples=60, deadline=None)
@given(st.data(), data_sets(), data_sets())
def test_after_any_swap_either_the_honest_rows_are_read_or_none(
    data: st.DataObject, rows: list[dict[str, Any]], others: list[dict[str, Any]]
) -> None:
    blobs = Blobs()
    honest, other = blobs.put(rows), blobs.put(others)
    identity = dataset_digest(honest)
    expected = read(blobs, encode_manifest(honest), identity)
    forged = swapped(data.draw, honest, other)
    try:
        found = read(blobs, encode_manifest(forged), identity)
    except IdentityMismatchError:
        return
    assert found == expected


def forged_blob(table: Any, honest: Manifest) -> tuple[Blobs, Manifest]:
    blobs, content = Blobs(), write_parquet(table)
    blob = digest_bytes(content)
    blobs.all[blob] = content
    chunk = msgspec.structs.replace(honest.chunks[0], blob=blob)
    return blobs, Manifest(honest.schema, (chunk,))


@pytest.mark.parametrize(
    ("column", "kind", "values", "wrong"),
    [
        ("x", "float", [0.0], pa.array([-0.0])),
        ("x", "float", [0.0], pa.array([float("nan")])),
        ("x", "list<float>", [[1e-9, 0.0]], pa.array([[1e-9, -0.0]])),
        ("x", "json", [{"a": 1}], pa.array(['{"a": 1}'])),
        ("x", "json", [{"a": 1}], pa.array(["{"])),
        ("x", "list<int>", [[1]], pa.array([[1, None]])),
        ("x", "list<float>", [[1.0]], pa.array([[None]], pa.list_(pa.float64()))),
        ("x", "list<float>", [[1.0]], pa.array([[float("nan")]])),
        ("x", "string", ["a"], pa.array([b"\xff"]).cast(pa.string(), safe=False)),
        ("x", "int", [1], pa.array([1], pa.timestamp("s"))),
        ("x", "int", [1], pa.array([1, 1])),
        ("y", "int", [1], pa.array([1])),
    ],
)
async def test_values_that_no_honest_chunk_has_are_not_read(
    column: str, kind: str, values: list[Any], wrong: Any
) -> None:
    honest, _ = as_single_chunk([{"x": v} for v in values], Schema.of({"x": kind}))
    schema = arrow_schema(Schema.of({column: kind}))
    fits = wrong.type == schema.field(0).type
    table = pa.table([wrong], schema=schema) if fits else pa.table({column: wrong})
    blobs, forged = forged_blob(table, honest)
    with pytest.raises(IdentityMismatchError) as e:
        await read_dataset(blobs.get, forged)
    assert e.value.digest == forged.chunks[0].blob
    assert "runs again" in e.value.remedy


@pytest.mark.parametrize("names", [["é", "é"], ["e\u0301"], ["é", "e\u0301"]])
async def test_a_column_twice_or_not_in_nfc_is_not_read(names: list[str]) -> None:
    honest, _ = as_single_chunk([{"é": 1}])
    table = pa.Table.from_arrays([pa.array([1])] * len(names), names=names)
    blobs, forged = forged_blob(table, honest)
    with pytest.raises(IdentityMismatchError, match=r"each once|the same name"):
        await read_dataset(blobs.get, forged)


@pytest.mark.parametrize(
    ("count", "words"), [(2, "not a Parquet file"), (1, "2 rows, its manifest says 1")]
)
async def test_damaged_pages_are_not_read_and_not_decoded_for_other_rows(
    count: int, words: str
) -> None:
    honest, content = as_single_chunk([{"x": "a"}, {"x": "b"}])
    [data] = content.values()
    damaged = data[:4] + b"\xff" * 20 + data[24:]
    blob = digest_bytes(damaged)
    chunk = msgspec.structs.replace(honest.chunks[0], blob=blob, count=count)
    blobs = Blobs()
    blobs.all[blob] = damaged
    with pytest.raises(IdentityMismatchError, match=words):
        await read_dataset(blobs.get, Manifest(honest.schema, (chunk,)))


async def test_rows_without_columns_are_bounded() -> None:
    honest, blobs = as_single_chunk([{}, {}], Schema())
    found = Blobs()
    found.all = dict(blobs)
    assert await read_dataset(found.get, honest) == []
    chunk = msgspec.structs.replace(honest.chunks[0], count=10**15)
    with pytest.raises(IdentityMismatchError):
        await read_dataset(found.get, Manifest(honest.schema, (chunk,)))


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"schema": 1}'])
def test_an_invalid_manifest_does_not_match_the_data_set(content: bytes) -> None:
    with pytest.raises(IdentityMismatchError):
        decode_manifest_of(content, Digest("f" * 64), digest_bytes(content))
