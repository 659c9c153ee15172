from typing import Any

import pyarrow as pa
import pytest

from flowmesh_core.dataset import dataset_digest
from flowmesh_core.errors import ContentLimitError, IdentityError
from flowmesh_store.datasets import read_rows_file, rows_to_chunks, rows_to_jsonl
from flowmesh_store.datasets.parquet import write_parquet

JSONL = b'\xef\xbb\xbf{"q": "a\xc3\xa9", "n": 1}\r\n\n{"q": "b, \\"c\\"", "n": 2}'
JSON = b'[{"q": "a\xc3\xa9", "n": 1},\n {"n": 2, "q": "b, \\"c\\""}]'
CSV = b'\xef\xbb\xbfq,n\r\na\xc3\xa9,1\r\n"b, ""c""",2\r\n'
TSV = b'n\tq\n1\ta\xc3\xa9\n2\t"b, ""c"""\n'
ROWS = [{"q": "aé", "n": 1}, {"q": 'b, "c"', "n": 2}]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.jsonl", JSONL),
        ("x.NDJSON", JSONL),
        ("dir.v1/x.json", JSON),
        ("x.csv", CSV),
        ("x.tsv", TSV),
        ("x.parquet", write_parquet(pa.Table.from_pylist(ROWS))),
    ],
)
def test_every_format_gives_the_same_dataset(name: str, data: bytes) -> None:
    manifest, _ = rows_to_chunks(read_rows_file(name, data))
    assert dataset_digest(manifest) == dataset_digest(rows_to_chunks(ROWS)[0])


def lines(count: int, bad: int, text: bytes) -> bytes:
    return b"\n".join(text if n == bad else b'{"n": %d}' % n for n in range(1, count + 1))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("q.jsonl", lines(9, 7, b'{"n": }'), "q.jsonl, line 7: not JSON"),
        ("q.jsonl", lines(9, 7, b"[1]"), "q.jsonl, line 7: not a JSON object; a row looks like"),
        ("q.jsonl", lines(9, 7, b'{"n": NaN}'), "q.jsonl, line 7: not JSON"),
        ("q.jsonl", lines(9, 7, b'{"n": "\xff"}'), "q.jsonl, line 7: not JSON"),
        (
            "q.jsonl",
            lines(9, 7, b'{"n": %d}' % 2**64),
            "q.jsonl, line 7, column 'n': the integer 18446744",
        ),
        ("q.jsonl", lines(9, 7, b'{"n": [%d]}' % -(10**30)), "64 bits; put it in quotes"),
        (
            "q.json",
            b'[{"a": {"b": %d}}]' % 10**25,
            "q.json, row 1, column 'a': the integer 1000000",
        ),
        ("q.jsonl", b'{"n": 1%s}' % (b"0" * 200), "q.jsonl, line 1, column 'n': the integer 1000"),
        ("q.json", b'[\n{"a": 1},\n{"a" 2}]', "q.json, line 3: not JSON"),
        ("q.json", b'{"a": 1}', "q.json: not a list of objects"),
        ("q.json", b'[{"a": 1}, 2]', "q.json, row 2: not a JSON object"),
        ("q.csv", b"a,b\n1,2\n\n3\n", "q.csv, line 4: 1 values where the first line names 2"),
        ("q.csv", b'a\n"x\ny"\n"z', "q.csv, line 4: not CSV"),
        ("q.csv", b"a,a\n1,2\n", "q.csv, line 1: a column is named twice"),
        ("q.csv", b"a\nx\n\xff\n", "q.csv, line 3: not UTF-8"),
        (
            "q.csv",
            b"q;n\na;1\n",
            "q.csv, line 1: the values seem to be separated by ';', not ','; write ',' between",
        ),
        ("q.csv", b"\xef\xbb\xbf\r\nq\tn\r\na\t1", "q.csv, line 2: the values seem to be"),
        ("q.csv", b"q\tn\na\t1\n", "by '\\t', not ','; let the file's name end in .tsv"),
        ("q.csv", b"q|n\na|1\n", "q.csv, line 1: the values seem to be separated by '|', not ','"),
        ("q.csv", b'"q, r";"n"\n"a";"1"\n', "q.csv, line 1: the values seem to be separated by"),
        ("q.tsv", b"q,n\na,1\n", "by ',', not '\\t'; let the file's name end in .csv"),
        ("q.tsv", b"q;n\na;1\n", "by ';', not '\\t'; write '\\t' between them, or quote the name"),
        ("q.parquet", b"a,b", "q.parquet: not a Parquet file"),
        ("q.xlsx", b"", "q.xlsx: .xlsx is not a format of rows; use one of .csv, .json"),
        ("q", b"", "q: the name has no ending such as .csv"),
    ],
)
def test_an_unreadable_file_is_reported_with_its_line(name: str, data: bytes, message: str) -> None:
    with pytest.raises(IdentityError) as caught:
        read_rows_file(name, data)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"), [("x.jsonl", b"\n"), ("x.json", b"[]"), ("x.csv", b"a,b\n"), ("x.csv", b"")]
)
def test_files_without_rows_give_no_rows(name: str, data: bytes) -> None:
    assert list(read_rows_file(name, data)) == []


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["1", "-20", ""], [1, -20, None]),
        (["1", "2.5", "1e-5"], [1.0, 2.5, 1e-5]),
        (["007", "1"], ["007", "1"]),
        (["1212092628029698049", "1"], [1212092628029698049, 1]),  # longer than a float's digits
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["true", "false"], [True, False]),
        (["yes", "no"], ["yes", "no"]),
        (["1_000", "2"], ["1_000", "2"]),
    ],
)
def test_a_csv_column_is_numeric_only_if_every_value_is_a_number(
    values: list[str], wanted: list[Any]
) -> None:
    text = "\n".join(["x,y", *(f"{v},." for v in values)])
    read = [row["x"] for row in read_rows_file("x.csv", text.encode())]
    assert read == wanted
    assert [type(v) for v in read] == [type(v) for v in wanted]


def test_a_single_column_may_have_another_separator_in_its_quoted_name() -> None:
    assert read_rows_file("x.csv", b'"q;\n|n"\na;b\n') == [{"q;\n|n": "a;b"}]
    assert read_rows_file("x.csv", b"q;n,m\na,1\n") == [{"q;n": "a", "m": 1}]


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_a_row_of_five_megabytes_is_read(ending: str) -> None:
    text = b"x" * 5_000_000
    data = {"jsonl": b'{"a": "%s"}', "json": b'[{"a": "%s"}]', "csv": b"a\n%s\n"}[ending] % text
    assert len(read_rows_file(f"x.{ending}", data)[0]["a"]) == 5_000_000


def test_a_bounded_parquet_file_is_counted_before_it_is_read() -> None:
    word, indices = pa.array(["x" * 100_000]), pa.array([0] * 1_000, pa.int32())
    data = write_parquet(pa.table({"a": pa.DictionaryArray.from_arrays(indices, word)}))
    assert len(data) < 10_000
    with pytest.raises(
        ContentLimitError, match=r"x\.parquet: the file decodes to more than 64 MiB"
    ):
        read_rows_file("x.parquet", data, decoded_bytes_max=64 << 20)
    assert read_rows_file("x.parquet", data, decoded_bytes_max=128 << 20).num_rows == 1_000
    with pytest.raises(IdentityError, match="not a Parquet file"):
        read_rows_file("x.parquet", data[:-9], decoded_bytes_max=64 << 20)


def test_a_download_reads_back_as_the_same_rows() -> None:
    rows = [{"q": "a\né", "n": 1, "j": {"b": [1.0], "a": None}}, {"q": None, "n": 2, "j": None}]
    data = rows_to_jsonl(rows)
    assert data.count(b"\n") == 2
    assert read_rows_file("x.jsonl", data) == rows
    assert rows_to_jsonl([{"b": b"\0\xff"}]) == b'{"b":"AP8="}\n'
