import base64
import math
import random
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.dataset import (
    Schema,
    columns_of,
    infer_schema,
    merge_schemas,
    row_digest,
    row_digests,
)
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import canonical_bytes
from flowmesh_core.identity.digest import PREFIX
from flowmesh_core.units import Digest

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
SCHEMA = Schema.of(
    {"f": "float", "i": "int", "s": "string", "j": "json", "b": "bytes", "l": "list<float>"}
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "f": st.none() | FLOATS,
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | TEXT,
        "j": st.none() | st.dictionaries(TEXT.filter(str.isascii), FLOATS, max_size=3),
        "b": st.none() | st.binary(max_size=4),
        "l": st.none() | st.lists(FLOATS, max_size=3),
    },
)


def digests_of(rows: list[dict[str, Any]], schema: Schema | None = None) -> list[Digest]:
    schema = infer_schema(rows) if schema is None else schema
    return row_digests(columns_of(rows, schema), schema, len(rows))


@given(st.lists(ROWS, max_size=6))
@settings(deadline=None)
def test_a_row_has_the_same_digest_alone_and_among_others(rows: list[dict[str, Any]]) -> None:
    assert digests_of(rows, SCHEMA) == [row_digest(row, SCHEMA) for row in rows]


@given(ROWS, ROWS)
@settings(deadline=None)
def test_rows_share_a_digest_only_if_their_values_are_equal(a: Any, b: Any) -> None:
    def full(row: dict[str, Any]) -> list[Any]:
        return [row.get(n) for n in SCHEMA.names]

    assert (row_digest(a, SCHEMA) == row_digest(b, SCHEMA)) == (full(a) == full(b))


def plain_digest(row: dict[str, Any]) -> str:
    """The digest of a row by its definition, each part written by itself."""
    types = SCHEMA.types()
    values = {n: columns_of([row], SCHEMA)[n][0] for n in SCHEMA.names}
    header = [[n, "null" if v is None else types[n].value] for n, v in values.items()]
    texts = (base64.b64encode(v).decode() if isinstance(v, bytes) else v for v in values.values())
    return blake3(
        PREFIX + b"row\0" + canonical_bytes(header) + canonical_bytes([*texts])
    ).hexdigest()


@given(st.lists(ROWS, max_size=6))
@settings(deadline=None)
def test_the_digest_of_a_row_is_that_of_its_definition(rows: list[dict[str, Any]]) -> None:
    assert digests_of(rows, SCHEMA) == [*map(plain_digest, rows)]


@pytest.mark.parametrize("size", [*range(100), 4095, 4096, 20_000])
def test_bytes_of_each_length_have_the_digest_of_their_base64(size: int) -> None:
    row = {"b": random.Random(size).randbytes(size)}
    assert row_digest(row, SCHEMA) == plain_digest(row)


def test_rows_of_ever_other_nulls_have_their_own_digests() -> None:
    """More headers than are remembered."""
    schema = Schema.of({f"c{n:04}": "int" for n in range(1000)})
    rows = [{f"c{n % 1000:04}": n} for n in range(200)]
    assert digests_of(rows, schema) == [row_digest(row, schema) for row in rows]


def test_the_order_of_a_rows_keys_does_not_affect_the_digest() -> None:
    assert digests_of([{"a": 1, "b": 2}]) == digests_of([{"b": 2, "a": 1}])


def test_names_types_and_values_all_affect_the_digest() -> None:
    rows: list[tuple[dict[str, Any], dict[str, str]]] = [
        ({"a": 1}, {"a": "int"}),
        ({"a": 1}, {"a": "float"}),
        ({"a": "1"}, {"a": "string"}),
        ({"a": 1}, {"a": "json"}),
        ({"a": b"1"}, {"a": "bytes"}),
        ({"a": "MQ=="}, {"a": "string"}),
        ({"a": True}, {"a": "bool"}),
        ({"a": [1]}, {"a": "list<int>"}),
        ({"a": [1]}, {"a": "list<float>"}),
        ({"a": []}, {"a": "list<string>"}),
        ({"a": None}, {"a": "int"}),
        ({"b": 1}, {"b": "int"}),
        ({"a": 1, "b": None}, {"a": "int", "b": "int"}),
        ({"a": None, "b": 1}, {"a": "int", "b": "int"}),
    ]
    assert len({row_digest(row, Schema.of(schema)) for row, schema in rows}) == len(rows)


def test_a_row_with_a_null_has_the_same_digest_in_a_data_set_that_types_the_column() -> None:
    alone = digests_of([{"a": 1, "b": None}])
    among = digests_of([{"a": 1, "b": None}, {"a": 2, "b": "x"}])
    assert alone[0] == among[0]


def test_minus_zero_is_zero_and_an_integer_in_a_float_column_is_a_float() -> None:
    schema = Schema.of({"x": "float"})
    same = {row_digest({"x": x}, schema) for x in (0, 0.0, -0.0)}
    assert len(same) == 1
    stored = columns_of([{"x": -0.0}, {"x": 0}], schema)["x"]
    assert [repr(x) for x in stored] == ["0.0", "0.0"]


def test_floats_whose_sum_is_not_finite_are_each_examined() -> None:
    greatest, schema = 1.7e308, Schema.of({"x": "list<float>"})
    given = {"x": [greatest, greatest, -0.0]}
    assert repr(columns_of([given], schema)["x"]) == repr([[greatest, greatest, 0.0]])
    for numbers in ([math.inf, -math.inf], [1.0, math.nan]):
        with pytest.raises(IdentityError, match=r"row 1, column 'x'"):
            columns_of([{"x": numbers}], schema)


def test_column_names_are_normalised_and_strings_are_not() -> None:
    assert digests_of([{"é": 1}]) == digests_of([{"e\u0301": 1}])
    assert digests_of([{"a": "é"}]) != digests_of([{"a": "e\u0301"}])


@pytest.mark.parametrize(
    ("rows", "types"),
    [
        ([{"x": 1}, {"x": 2.5}, {"x": None}], {"x": "float"}),
        ([{"x": 1}, {}], {"x": "int"}),
        ([{"x": None}], {"x": "null"}),
        ([{"x": [1, 2]}, {"x": [0.5]}], {"x": "list<float>"}),
        ([{"x": ["a"]}, {"x": []}], {"x": "list<string>"}),
        ([{"x": [1, "a"]}], {"x": "json"}),
        ([{"x": [{"role": "user"}]}], {"x": "json"}),
        ([{"x": {"a": 1}}, {"x": [1]}], {"x": "json"}),
        ([{"x": True}, {"x": False, "y": b"z"}], {"x": "bool", "y": "bytes"}),
        ([], {}),
    ],
)
def test_types_are_found_from_the_rows(rows: Any, types: dict[str, str]) -> None:
    assert infer_schema(rows) == Schema.of(types)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"x": 1}, {"x": "a"}, {"x": 2}],
            "column 'x': mixed types: row 1 has an integer, row 2 has a string; write one type",
        ),
        ([{"x": True}, {"x": 1}], "row 1 has a boolean, row 2 has an integer"),
        ([{"x": 1}, {"x": {3}}], "row 2, column 'x': a value of type set"),
        ([{}], "the rows have no columns"),
        ([{"": 1}], "is not a column name"),
        ([{"é": 1}, {"e\u0301": 2}], "same name"),
    ],
)
def test_rows_without_a_schema_are_refused_with_their_location(rows: Any, message: str) -> None:
    with pytest.raises(IdentityError) as caught:
        infer_schema(rows)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("int", 1.5, "row 2, column 'x': 1.5 is not of type int"),
        ("int", True, "True is not of type int"),
        ("int", 2**63, "is not of type int"),
        ("float", "1", "'1' is not of type float"),
        ("float", math.nan, "nan is not of type float"),
        ("float", 10**400, "is not of type float"),
        ("string", 5, "5 is not of type string"),
        ("string", "\ud800", r"'\ud800' is not of type string"),
        ("bytes", "a", "'a' is not of type bytes"),
        ("bool", 0, "0 is not of type bool"),
        ("json", {"a": math.inf}, "a: inf has no canonical form"),
        ("list<int>", [1, 2.5], "[1, 2.5] is not of type list<int>"),
        ("list<string>", ["a", None], "is not of type list<string>"),
        ("list<float>", 1.0, "is not of type list<float>"),
        ("null", 1, "1 is not of type null"),
    ],
)
def test_a_value_that_does_not_fit_names_row_and_column(
    type_: str, value: Any, message: str
) -> None:
    with pytest.raises(IdentityError) as caught:
        columns_of([{"x": None}, {"x": value}], Schema.of({"x": type_}))
    assert message in str(caught.value)
    assert caught.value.where == "row 2, column 'x'"


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(IdentityError, match="row 2: unknown columns 'y'; the schema has x"):
        columns_of([{"x": 1}, {"y": 1}], Schema.of({"x": "int"}))


def test_a_schema_is_in_order_of_name_and_closed() -> None:
    assert Schema.of({"b": "int", "a": "json"}).names == ["a", "b"]
    with pytest.raises(IdentityError, match="'decimal' is not a column type; use one of"):
        Schema.of({"a": "decimal"})


def test_merged_schemas_agree_but_for_columns_without_values() -> None:
    one, other = Schema.of({"a": "int", "b": "null"}), Schema.of({"a": "null", "b": "string"})
    assert merge_schemas([one, other]) == Schema.of({"a": "int", "b": "string"})
    with pytest.raises(IdentityError, match="'a' is int in one and string in another; 'c' is miss"):
        merge_schemas([one, Schema.of({"a": "string", "b": "int", "c": "int"})])


def test_one_row_of_five_megabytes_is_hashed() -> None:
    text = random.Random(1).randbytes(2_500_000).hex()
    schema = Schema.of({"text": "string"})
    changed = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert row_digest({"text": text}, schema) != row_digest({"text": changed}, schema)
