"""Decoding by batches gives what reading the whole file gives, and stops where it must."""

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.dataset import Manifest, RunningBorders, borders
from flowmesh_core.errors import ContentLimitError, IdentityError
from flowmesh_core.units import Digest
from flowmesh_store.datasets import json_elements as json_elements_module
from flowmesh_store.datasets import read_rows_file, rows_to_chunks
from flowmesh_store.datasets.budget import DecodeBudget
from flowmesh_store.datasets.decoding import Decoding
from flowmesh_store.datasets.row_readers import reader_of, reader_of_rows

VALUES: list[Callable[[random.Random], Any]] = [
    lambda r: r.randrange(-(10**6), 10**6),
    lambda r: r.choice([r.random(), 3.0, 1e300, -0.0, 5e-324]),
    lambda r: r.choice([r.random(), r.randrange(9)]),
    lambda r: r.choice(["", "a", "é\n", '"', "x, y", "true", "12", "日本 \U0001f600", "\r\n"]),
    lambda r: r.choice([True, False]),
    lambda r: {"b": r.randrange(3), "a": [1.0, None], "c": [{"é": '{[,]}\\"'}]},
    lambda r: [r.randrange(9) for _ in range(r.randrange(4))],
    lambda r: [r.choice([0.5, 1]) for _ in range(r.randrange(4))],
    lambda r: ["x" * r.randrange(3) for _ in range(r.randrange(3))],
]


def random_rows(seed: int, *, mixed: bool) -> list[dict[str, Any]]:
    r = random.Random(seed)
    columns = {name: r.choice(VALUES) for name in ("n", "é", "a b", "z")[: r.randrange(1, 5)]}
    count = r.choice([0, 1, 5, 300, 1_500])
    some = [{k: make(r) for k, make in columns.items() if r.random() < 0.9} for _ in range(count)]
    if r.random() < 0.3 and some:  # long pieces without a least row
        some[len(some) // 3 :] = [some[0]] * (count - len(some) // 3)
    if mixed and r.random() < 0.2 and some:
        some[-1][next(iter(columns))] = r.choice(["text", 7, [{}], 2**70])
    return some


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"\r\n".join(json.dumps(row, ensure_ascii=False).encode() for row in rows)


def listed(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows, indent=len(rows) % 3 or None, ensure_ascii=False).encode()


def csv_text(rows: list[dict[str, Any]]) -> bytes:
    import csv

    names = sorted({name for row in rows for name in row})
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=",", lineterminator="\r\n" if len(rows) % 2 else "\n")
    writer.writerow(names)
    plain = lambda v: v if isinstance(v, str | int | float) else json.dumps(v)  # noqa: E731
    for row in rows:
        writer.writerow([plain(row[n]) if n in row else "" for n in names])
    return b"\xef\xbb\xbf" + out.getvalue().encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    names = {name: [row.get(name) for row in rows] for row in rows for name in row}
    columns = {n: [float(v) if type(v) is int else v for v in c] for n, c in names.items()}
    columns = names if len(rows) % 2 else columns
    pq.write_table(pa.table(columns), sink, row_group_size=400, use_dictionary=["n"])
    return sink.getvalue()


FORMATS = {".jsonl": jsonl, ".json": listed, ".csv": csv_text, ".parquet": parquet}


def whole(name: str, data: bytes) -> tuple[Manifest, dict[Digest, bytes]]:
    return rows_to_chunks(read_rows_file(name, data))


def decoded(name: str, data: bytes, folder: Path) -> tuple[Manifest, dict[Digest, bytes]]:
    path = folder / "upload"
    path.write_bytes(data)
    budget = DecodeBudget(name, len(data))
    decoding = Decoding(reader_of(name, path, budget), budget)
    blobs = dict(decoding.blobs())
    return decoding.manifest, blobs


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except IdentityError as e:
        return e.message, e.where


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("seed", range(25))
def test_a_file_read_in_batches_gives_the_same_data_set_as_the_whole_file(
    ending: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_elements_module, "_PIECE_BYTES", 1 + seed * 97)
    data = FORMATS[ending](random_rows(seed, mixed=ending != ".parquet"))
    name = f"x{ending}"
    expected = outcome(lambda: whole(name, data))
    found = outcome(lambda: decoded(name, data, tmp_path))
    if ending == ".json" and isinstance(expected[1], str):
        # The element is named as well, where the whole file only had its name.
        assert found[0] == expected[0]
        assert found[1].startswith(expected[1])
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.jsonl", b'\xef\xbb\xbf{"a": 1}\n\n{"a": "x"}\n'),
        ("x.jsonl", b'{"a": 1}\n[1]\n'),
        ("x.jsonl", b'{"a": 1}\n{"a": }\n'),
        ("x.jsonl", b"{}\n{}\n"),
        ("x.jsonl", b'{"": 1}\n'),
        ("x.jsonl", '{"é": 1, "e\u0301": 2}\n'.encode()),
        ("x.jsonl", b""),
        ("x.json", b" [ ] "),
        ("x.json", b'[{"a": 1}, 2]'),
        ("x.json", b'{"a": 1}'),
        ("x.json", b"[]"),
        ("x.csv", b""),
        ("x.csv", b"a,b\n"),
        ("x.csv", b"\n\na,b\n1,2\n"),
        ("x.csv", b"a,a\n1,2\n"),
        ("x.csv", b"a\rx\ry\r"),
        ("x.csv", b"a,b\n1,2\n\n3\n"),
        ("x.csv", b'a\n"x\ny"\n"z'),
        ("x.csv", b"a\nx\n\xff\n"),
        ("x.csv", b"a\n1e999\n"),
        ("x.csv", b",b\n1,2\n"),
        ("x.csv", b"a;b\n1;2\n"),
        ("x.csv", b"\xef\xbb\xbf\n\na;b\n1;2\n"),
        ("x.csv", b'"a;b\n|"\n1;2\n'),
        ("x.tsv", b"n\tq\n1\ta\n2\t\n"),
        ("x.csv", b"a\n9223372036854775808\n1\n"),
        ("x.csv", b"a,b\n1,\n,\n"),
        ("x.parquet", b"a,b"),
        ("x.xlsx", b""),
    ],
)
def test_unusual_files_are_read_or_refused_the_same_way_in_batches_as_whole(
    name: str, data: bytes, tmp_path: Path
) -> None:
    assert outcome(lambda: decoded(name, data, tmp_path)) == outcome(lambda: whole(name, data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'[\n{"a": 1},\n{"a" 2}]', "line 3: not JSON"),
        (b'[{"a": 1},]', "line 1: not JSON"),
        (b'[{"a": 1}', "line 1: not JSON"),
        (b'[{"a": 1}} ', "line 1: not JSON"),
        (b'[{"a": 1}]\n\n{"a": 2}', "not JSON"),
        (b'[{"a": "x', "line 1: not JSON"),
        (b"[,]", "line 1: not JSON"),
        (b'[{"a": 1}, {"b": [1}]]', "not JSON"),
    ],
)
def test_a_broken_list_is_reported_with_its_line(data: bytes, message: str, tmp_path: Path) -> None:
    for read in (lambda: whole("q.json", data), lambda: decoded("q.json", data, tmp_path)):
        with pytest.raises(IdentityError, match=message):
            read()


@given(st.lists(st.integers(0, 60), max_size=900), st.lists(st.integers(1, 90), min_size=1))
@settings(deadline=None, max_examples=200)
def test_chunk_borders_found_incrementally_equal_those_of_all_rows(
    numbers: list[int], sizes: list[int]
) -> None:
    digests = [f"{n * 7919 % 64:02x}" for n in numbers]
    for average in (2, 4, 32):
        running, found, at = RunningBorders(average=average), [], 0
        for size in sizes * (len(digests) + 1):
            found += running.add(digests[at : at + size])
            at += size
            if at >= len(digests):
                break
        assert [0, *found, *running.end()][: len(digests)] == borders(digests, average=average)


def test_equal_rows_are_buffered_for_one_chunk_at_a_time() -> None:
    running = RunningBorders()
    found = [b for _ in range(400) for b in running.add(["00"] * 100)]
    assert len(running._digests) < 400
    assert [0, *found, *running.end()] == borders(["00"] * 40_000)


def test_rows_in_memory_are_cut_as_rows_of_a_file() -> None:
    rows = [{"a": n % 7, "b": [n]} for n in range(900)]
    budget = DecodeBudget("rows", 1)
    decoding = Decoding(reader_of_rows(rows, budget), budget)
    blobs = dict(decoding.blobs())
    assert (decoding.manifest, blobs) == rows_to_chunks(rows)


def wide(columns: int) -> bytes:
    return orjson.dumps({f"c{n}": n for n in range(columns)})


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.jsonl", wide(4_097), "more than 4,096 columns"),
        ("x.csv", ",".join(map(str, range(4_097))).encode(), "more than 4,096 columns"),
        ("x.jsonl", b'{"a": "%s"}' % (b"x" * (17 << 20)), "line 1: a row has more than 16 MiB"),
        ("x.json", b'[{"a": "%s"}]' % (b"x" * (17 << 20)), "line 1: a row has more than 16 MiB"),
        ("x.csv", b'a\n"%s"\n' % (b"x\n" * (9 << 20)), "a row has more than 16 MiB"),
        ("x.csv", b"a\n" + b"x" * (17 << 20), "line 2: a row has more than 16 MiB"),
        ("x.jsonl", b'{"a": %s}' % (b"[" * 100_000 + b"]" * 100_000), "line 1: nested too deeply"),
        ("x.json", b'[{"a": %s}]' % (b"[" * 100_000 + b"]" * 100_000), "nested too deeply"),
        ("x.json", b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        # A wide row, and then many that are empty: 4,000 nulls for three bytes.
        ("x.jsonl", wide(4_000) + b"\n" + b"{}\n" * 200_000, "decodes to more than"),
    ],
)
def test_a_file_that_decodes_to_too_much_is_refused(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ContentLimitError, match=message):
        decoded(name, data, tmp_path)


def test_a_parquet_file_that_announces_too_much_is_refused_before_a_page_is_read(
    tmp_path: Path,
) -> None:
    sink = io.BytesIO()
    table = pa.table({"a": pa.array(["x" * 1_000_000] * 200)})
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    with pytest.raises(ContentLimitError, match="row group 1 decodes to more than 6"):
        decoded("x.parquet", sink.getvalue(), tmp_path)


def test_a_parquet_dictionary_counts_by_the_size_of_its_decoded_rows(tmp_path: Path) -> None:
    sink = io.BytesIO()
    word, indices = pa.array(["x" * 1_000_000]), pa.array([0] * 4_000, pa.int32())
    table = pa.table({"a": pa.DictionaryArray.from_arrays(indices, word)})
    pq.write_table(table, sink, compression="zstd")
    assert len(sink.getvalue()) < 20_000
    budget = DecodeBudget("x.parquet", len(sink.getvalue()))
    path = tmp_path / "upload"
    path.write_bytes(sink.getvalue())
    decoding = Decoding(reader_of("x.parquet", path, budget), budget)
    with pytest.raises(ContentLimitError, match="the file decodes to more than 64 MiB"):
        list(decoding.blobs())
