"""Files of rows are read as they were written, or refused: no digit, key or empty text is lost."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.dataset import Manifest
from flowmesh_core.errors import IdentityError
from flowmesh_store.datasets import read_rows_file, rows_to_chunks
from flowmesh_store.datasets.budget import DecodeBudget
from flowmesh_store.datasets.chunks import type_rows
from flowmesh_store.datasets.csv_records import records
from flowmesh_store.datasets.decoding import Decoding
from flowmesh_store.datasets.exact_numbers import exact_float
from flowmesh_store.datasets.parquet import write_parquet
from flowmesh_store.datasets.row_readers import reader_of

LONG = "3.141592653589793238"
DIGITS = "more digits than a float"


def decoded(name: str, data: bytes, tmp_path: Path) -> Manifest:
    """What an upload of the file stores."""
    path = tmp_path / "file"
    path.write_bytes(data)
    budget = DecodeBudget(name, len(data))
    decoding = Decoding(reader_of(name, path, budget), budget)
    for _ in decoding.blobs():
        pass
    return decoding.manifest


@pytest.mark.parametrize(
    ("name", "data", "place", "reason"),
    [
        ("q.jsonl", '{"n": 1}\n{"n": %s}', "q.jsonl, line 2, column 'n'", DIGITS),
        ("q.jsonl", '{"n": {"m": [0.5, %s]}}', "q.jsonl, line 1, column 'n'", DIGITS),
        ("q.json", '[{"n": 1},\n{"m": 2, "n": %s}]', "q.json, row 2, column 'n'", DIGITS),
        ("q.csv", "m,n\n1,2\n1,%s\n", "q.csv, row 2, column 'n'", DIGITS),
        ("q.tsv", "m\tn\n1\t%s\n2\t\n", "q.tsv, row 1, column 'n'", DIGITS),
    ],
)
def test_a_value_that_would_lose_precision_is_refused_with_row_and_column(
    name: str, data: str, place: str, reason: str, tmp_path: Path
) -> None:
    refused_everywhere(name, data % LONG, place, reason, tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "place", "reason"),
    [
        ("q.jsonl", '{"n": 1, "m": 2}\n{"n": 1, "n": 1}', "q.jsonl, line 2", "'n' is given twice"),
        ("q.jsonl", '{"n": {"a" : 1, "b": 2, "a": 3}}', "line 1, column 'n'", "'a' is given twice"),
        ("q.json", '[{"n": 1}, {"n": [{"a": 1, "a": 1}]}]', "row 2, column 'n'", "'a' is given tw"),
        ("q.jsonl", '{"n": "a\\":", "n": "b"}', "q.jsonl, line 1", "'n' is given twice"),
        ("q.jsonl", '{"n": 1, "\\u006e": 2}', "q.jsonl, line 1", "'n' is given twice"),
        ("q.csv", "n,m,n\n1,2,3\n", "q.csv, line 1", "a column is named twice"),
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_its_place(
    name: str, data: str, place: str, reason: str, tmp_path: Path
) -> None:
    refused_everywhere(name, data, place, reason, tmp_path)


def refused_everywhere(name: str, data: str, place: str, reason: str, tmp_path: Path) -> None:
    """A file is refused as an input of a command and as an upload, for the same reason."""
    content = data.encode()
    with pytest.raises(IdentityError) as read:
        read_rows_file(name, content)
    with pytest.raises(IdentityError) as uploaded:
        decoded(name, content, tmp_path)
    for caught in (read.value, uploaded.value):
        assert place in str(caught)
        assert reason in str(caught)


def test_a_decimal_of_parquet_is_refused_with_row_and_column() -> None:
    values = [Decimal("0.1"), None, Decimal(LONG)]
    data = write_parquet(pa.table({"n": pa.array(values, pa.decimal128(30, 18))}))
    with pytest.raises(IdentityError, match=r"row 3, column 'n': the number 3\.14.*more digits"):
        rows_to_chunks(read_rows_file("q.parquet", data))
    short = write_parquet(pa.table({"n": pa.array([Decimal("0.1")], pa.decimal128(30, 18))}))
    assert type_rows(read_rows_file("q.parquet", short)).columns == {"n": [0.1]}


def test_an_integer_among_floats_is_refused_where_a_float_cannot_hold_it() -> None:
    with pytest.raises(IdentityError, match="row 2, column 'n': 9007199254740993 is not of type"):
        rows_to_chunks([{"n": 0.5}, {"n": 2**53 + 1}])
    assert type_rows([{"n": 0.5}, {"n": 2**60}]).columns == {"n": [0.5, 2.0**60]}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("0.1", 0.1), ("-2.50", -2.5), ("1e-5", 1e-5), ("0.30000000000000004", 0.1 + 0.2)),
        *(("0.10000000000000001", 0.1), ("0.1000000000000000000000", 0.1), ("-0.0", 0.0)),
        ("0.1000000000000000055511151231257827021181583404541015625", 0.1),
        *(("5e-324", 5e-324), ("1.7976931348623157e308", 1.7976931348623157e308), ("0e999", 0.0)),
        *((LONG, None), ("0.12345678901234567", None), ("1e-400", None), ("1e400", None)),
        *(("9007199254740993.0", None), ("12345678901234567890", None), ("1e" + "9" * 30, None)),
    ],
)
def test_a_number_is_exact_where_a_float_has_all_its_digits(
    text: str, number: float | None
) -> None:
    assert exact_float(text) == number


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(17, 30))
def test_every_float_that_a_program_prints_is_exact(number: float, digits: int) -> None:
    assert exact_float(repr(number)) == number
    assert exact_float(format(number, f".{digits}g")) == number


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=8),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=4), JSON_VALUES, min_size=1), st.booleans())
def test_json_that_a_program_prints_is_read_back(row: dict[str, Any], ascii_only: bool) -> None:
    line = json.dumps(row, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert read_rows_file("q.jsonl", line) == [row]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ('a,b\n"",\n', [("", None)]),
        ('a,b\n,""\n"",""\n,\n', [(None, ""), ("", ""), (None, None)]),
        ('a,b\r\n"x,"",y",\r\n"",x\r\n', [('x,",y', None), ("", "x")]),
        ('a,b\n"two\n"""", lines",\n', [('two\n"", lines', None)]),
        ('a,b\n"",1\n2,3\n', [("", 1), ("2", 3)]),
        ('a,b\n1,""\n,2', [(1, ""), (None, "2")]),
        ('"a","b"\n x"",\n', [(' x""', None)]),
    ],
)
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_quoted_empty_values_are_empty_strings_and_others_null(
    data: str, wanted: list[Any], delimiter: str, tmp_path: Path
) -> None:
    name = "q.csv" if delimiter == "," else "q.tsv"
    text = data.replace(",", delimiter)
    values = [[v.replace(",", delimiter) if isinstance(v, str) else v for v in r] for r in wanted]
    rows = [dict(zip("ab", row, strict=True)) for row in values]
    assert read_rows_file(name, text.encode()) == rows
    found = decoded(name, text.encode(), tmp_path)
    assert [c.rows for c in found.chunks] == [c.rows for c in rows_to_chunks(rows)[0].chunks]


@given(
    st.lists(
        st.lists(
            st.text(st.sampled_from('a",\n\r '), max_size=5) | st.none(), min_size=2, max_size=3
        ),
        min_size=1,
        max_size=5,
    )
)
def test_csv_records_equal_those_of_the_standard_library(rows: list[list[str | None]]) -> None:
    out = io.StringIO(newline="")
    for row in rows:
        quoted = ["" if v is None else '"' + v.replace('"', '""') + '"' for v in row]
        out.write(",".join(quoted) + "\n")
    text = out.getvalue()
    found = [list(row) for row, _ in records(io.StringIO(text, newline=""), "q.csv", ",")]
    assert found == rows
    standard = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert [[v or "" for v in row] for row in found] == list(standard)
