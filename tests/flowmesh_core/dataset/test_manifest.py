from typing import Any

import pytest

from flowmesh_core.catalog.contract import Reduction
from flowmesh_core.dataset import (
    ChunkRef,
    Manifest,
    Schema,
    concat,
    dataset_digest,
    decode_manifest,
    encode_manifest,
    reduce_metrics,
)
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import digest_bytes

SCHEMA = Schema.of({"é": "json", "a": "list<float>"})


def chunk(name: str, count: int = 3, blob: str = "blob") -> ChunkRef:
    return ChunkRef(digest_bytes(name.encode()), digest_bytes(blob.encode()), count, 100)


def test_a_manifest_reads_back() -> None:
    manifest = Manifest(SCHEMA, (chunk("1"), chunk("2")))
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert (manifest.row_count, manifest.blob_bytes) == (6, 200)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not a dataset manifest"),
        (b'{"schema":{"columns":[{"name":"a","type":"decimal"}]}}', "not a dataset manifest"),
        (b'{"schema":{"columns":[{"name":"b","type":"int"},{"name":"a","type":"int"}]}}', "order"),
        (b'{"schema":{"columns":[]},"format":2}', "format 2; this release reads 1"),
    ],
)
def test_an_invalid_manifest_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        decode_manifest(data)


def test_a_data_sets_identity_depends_on_schema_and_rows_and_not_on_files() -> None:
    base = dataset_digest(Manifest(SCHEMA, (chunk("1"), chunk("2"))))
    assert dataset_digest(Manifest(SCHEMA, (chunk("1", blob="x"), chunk("2")))) == base
    others = [
        Manifest(SCHEMA, (chunk("2"), chunk("1"))),
        Manifest(SCHEMA, (chunk("1"),)),
        Manifest(Schema.of({"a": "int"}), (chunk("1"), chunk("2"))),
    ]
    assert base not in map(dataset_digest, others)


def test_concat_chains_chunks_and_drops_empty_ones() -> None:
    empty = Manifest(Schema(), (chunk("none", 0),))
    one, two = Manifest(SCHEMA, (chunk("1"), chunk("0", 0))), Manifest(SCHEMA, (chunk("2"),))
    assert concat([one, empty, two]) == Manifest(SCHEMA, (chunk("1"), chunk("2")))
    assert concat([empty]) == Manifest(Schema())
    assert concat([]) == Manifest(Schema())


def test_concat_names_the_columns_that_differ() -> None:
    other = Manifest(Schema.of({"a": "int", "b": "int"}), (chunk("2"),))
    with pytest.raises(IdentityError, match="'a' is list<float> in one and int in another; 'b'"):
        concat([Manifest(SCHEMA, (chunk("1"),)), other])


@pytest.mark.parametrize(
    ("reduction", "parts", "wanted"),
    [
        (
            Reduction.SUM,
            [{"n": 1, "x": 0.5}, {"n": 2, "x": 0.25, "y": 1}],
            {"n": 3, "x": 0.75, "y": 1},
        ),
        (Reduction.SUM, [{"x": 1e16}, {"x": 1.0}, {"x": -1e16}], {"x": 1.0}),
        (
            Reduction.MEAN_BY_COUNT,
            [{"count": 1, "acc": 1.0}, {"count": 3, "acc": 0.0}, {"count": 0}],
            {"acc": 0.25, "count": 4},
        ),
        (
            Reduction.MEAN_BY_COUNT,
            [{"count": 0, "acc": None}, {"count": 2, "acc": 0.5}],
            {"acc": 0.5, "count": 2},
        ),
        (Reduction.MEAN_BY_COUNT, [{"count": 0, "acc": None}] * 2, {"acc": None, "count": 0}),
        (Reduction.MERGE, [{"a": 1}, {"b": "x", "a": 1}], {"a": 1, "b": "x"}),
        (Reduction.SUM, [], {}),
        (Reduction.MEAN_BY_COUNT, [], {"count": 0}),
    ],
)
def test_metrics_are_reduced(reduction: Reduction, parts: Any, wanted: Any) -> None:
    result = reduce_metrics(reduction, parts)
    assert result == wanted
    assert reduce_metrics(reduction, parts[::-1]) == result


@pytest.mark.parametrize(
    ("reduction", "parts", "message"),
    [
        (Reduction.SUM, [{"n": 1}, {"n": "2"}], "metrics of chunk 2, key 'n': '2' is not a number"),
        (Reduction.MEAN_BY_COUNT, [{"acc": None, "count": 1}], "key 'acc': None is not a number"),
        (Reduction.MEAN_BY_COUNT, [{"acc": 1.0}], "metrics of chunk 1, key 'count': None is no"),
        (Reduction.MERGE, [{"a": 1}, {"a": 2}], "chunk 2, key 'a': 2 differs from 1"),
        (Reduction.CONCAT, [{}], "cannot be concatenated"),
        (Reduction.SUM, [{"n": 1e308}] * 3, "metrics, key 'n': the chunks' values have no finite"),
        (Reduction.MEAN_BY_COUNT, [{"n": 1e308, "count": 9}, {"n": -1e308, "count": 9}], "key 'n'"),
    ],
)
def test_metrics_that_cannot_be_reduced_name_chunk_and_key(
    reduction: Reduction, parts: Any, message: str
) -> None:
    with pytest.raises(IdentityError, match=message):
        reduce_metrics(reduction, parts)
