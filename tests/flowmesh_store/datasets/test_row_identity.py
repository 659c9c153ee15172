"""Digests of an Arrow table's rows are those of the same rows as Python values."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowmesh_core.dataset import (
    ChunkRef,
    ColumnType,
    Schema,
    columns_of,
    row_digests,
    row_digests_of_forms,
    rows_digest,
)
from flowmesh_core.errors import IdentityError, IdentityMismatchError
from flowmesh_core.identity import digest_bytes
from flowmesh_store.datasets import (
    as_single_chunk,
    read_rows,
    read_verified_rows,
)
from flowmesh_store.datasets.parquet import arrow_schema, arrow_table, write_parquet
from flowmesh_store.datasets.row_identity import NUMBERS_LEAST, table_row_digests

BORDERS = [1e-4, 1e16, 0.0, 5e-324, 1e-5, 1.5e-5, 123456789012345680.0, 1e22, 1e300, 0.1]
BORDERS += [math.nextafter(x, to) for x in (1e-4, 1e16) for to in (0.0, math.inf)]
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [sign * x for x in BORDERS for sign in (1, -1)]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
JSONS = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES = {
    ColumnType.NULL: st.none(),
    ColumnType.BOOL: st.booleans(),
    ColumnType.INT: INTEGERS,
    ColumnType.FLOAT: FLOATS,
    ColumnType.STRING: TEXTS,
    ColumnType.BYTES: st.binary(max_size=5),
    ColumnType.JSON: JSONS.filter(lambda value: value is not None),
    ColumnType.LIST_FLOAT: st.lists(FLOATS, max_size=4),
    ColumnType.LIST_INT: st.lists(INTEGERS, max_size=4),
    ColumnType.LIST_STRING: st.lists(TEXTS, max_size=4),
}
FORMS = ["one", "slice", "chunks"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    """Rows of at most three columns, with nulls; so few or so many that Arrow examines floats."""
    names = st.sampled_from(["a", "é", 'quoted"'])
    types = draw(st.dictionaries(names, st.sampled_from(list(VALUES)), min_size=1))
    schema = Schema.of({name: type_.value for name, type_ in types.items()})
    row = st.fixed_dictionaries({c.name: st.none() | VALUES[c.type] for c in schema.columns})
    rows = draw(st.lists(row, min_size=1, max_size=3))
    return schema, rows * draw(st.sampled_from([1, NUMBERS_LEAST]))


def in_form(table: Any, form: str) -> Any:
    """The same rows in one array per column, within a larger one, or in two arrays."""
    half = table.num_rows // 2
    if form == "slice":
        return (
            pa.concat_tables([table, table, table]).combine_chunks().slice(len(table), len(table))
        )
    return pa.concat_tables([table[:half], table[half:]]) if form == "chunks" else table


@settings(max_examples=60, deadline=None)
@given(tables(), st.sampled_from(FORMS))
@example((Schema.of({"a": "list<float>"}), [{"a": [1e-9]}, {"a": None}] * NUMBERS_LEAST), "slice")
@example((Schema.of({"a": "float"}), [{"a": 1e-9}, {"a": None}] * NUMBERS_LEAST), "chunks")
@example((Schema.of({"a": "float"}), [{"a": x} for x in BORDERS] * NUMBERS_LEAST), "one")
def test_a_tables_rows_have_the_digests_of_the_same_values(
    found: tuple[Schema, list[dict[str, Any]]], form: str
) -> None:
    schema, rows = found
    columns = columns_of(rows, schema)
    table = in_form(arrow_table(columns, schema), form)
    values = {name: table.column(name).to_pylist() for name in schema.names}
    expected = row_digests(columns, schema, len(rows))
    assert table_row_digests(table, values, schema, len(rows)) == expected


@settings(max_examples=30, deadline=None)
@given(tables())
def test_rows_read_with_a_comparison_are_those_read_without(
    found: tuple[Schema, list[dict[str, Any]]],
) -> None:
    schema, rows = found
    manifest, blobs = as_single_chunk(rows, schema)
    [chunk], [data] = manifest.chunks, blobs.values()
    read = read_verified_rows(data, schema, chunk)
    assert repr(read) == repr(read_rows(data, schema))
    normal = [{name: row[name] for name in schema.names} for row in rows]
    assert read == normal


@pytest.mark.parametrize("number", [-0.0, math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("place", [0, 7, -1])
@pytest.mark.parametrize("kind", ["float", "list<float>"])
def test_a_number_that_no_chunk_has_is_found_among_many(
    number: float | None, place: int, kind: str
) -> None:
    honest = [0.0 if number == 0 else 1.0] * NUMBERS_LEAST
    forged: list[float | None] = [*honest]
    forged[place] = number
    schema = Schema.of({"x": kind})
    is_list = kind != "float"
    manifest, blobs = as_single_chunk([{"x": v} for v in ([honest] if is_list else honest)], schema)
    [chunk], [data] = manifest.chunks, blobs.values()
    assert len(read_verified_rows(data, schema, chunk)) == chunk.count
    table = pa.table([pa.array([forged] if is_list else forged)], schema=arrow_schema(schema))
    with pytest.raises(IdentityMismatchError):
        read_verified_rows(write_parquet(table), schema, chunk)


def test_a_null_among_many_numbers_is_refused_even_by_its_own_digest() -> None:
    schema, forged = Schema.of({"x": "list<float>"}), [[1.0] * NUMBERS_LEAST + [None]]
    table = pa.table([pa.array(forged)], schema=arrow_schema(schema))
    rows = rows_digest(row_digests_of_forms({"x": forged}, schema, 1))
    chunk = ChunkRef(rows, digest_bytes(b""), 1, 0)
    with pytest.raises(IdentityMismatchError, match="null among its numbers"):
        read_verified_rows(write_parquet(table), schema, chunk)


def test_what_a_null_list_hides_is_not_examined() -> None:
    """Arrow's lists may have values under a null, which no reader gets."""
    hidden = pa.array([1.0] * NUMBERS_LEAST + [-0.0, 1e-9])
    ends = [0, NUMBERS_LEAST, NUMBERS_LEAST + 1, NUMBERS_LEAST + 2]
    lists = pa.ListArray.from_arrays(ends, hidden, mask=pa.array([False, True, False]))
    schema = Schema.of({"x": "list<float>"})
    values = [[1.0] * NUMBERS_LEAST, None, [1e-9]]
    found = table_row_digests(pa.table({"x": lists}), {"x": values}, schema, 3)
    assert found == row_digests({"x": values}, schema, 3)


def test_a_negative_zero_among_many_zeros_is_refused() -> None:
    numbers = [0.0] * NUMBERS_LEAST
    schema = Schema.of({"x": "float"})
    zeros = pa.table({"x": pa.array(numbers)})
    assert table_row_digests(zeros, {"x": numbers}, schema, len(numbers))
    numbers[-1] = -0.0
    with pytest.raises(IdentityError, match=r"-0\.0"):
        table_row_digests(pa.table({"x": numbers}), {"x": numbers}, schema, len(numbers))


def test_every_type_has_values_here() -> None:
    assert set(VALUES) == set(ColumnType)
