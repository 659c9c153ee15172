"""Attacker: T1, a tenant with the right to upload.
Action: uploads Parquet files of a few kilobytes whose rows become gigabytes.
Must not happen: the control plane grows by more than 64 MiB, answers 5xx, or ends.
"""

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.attacks.control_process import GROWTH_BYTES_MAX, ControlProcess, started

HONEST = pa.table({"q": [f"question {n}" for n in range(500)], "n": list(range(500))})
pytestmark = pytest.mark.slow


def packed(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def dictionary() -> bytes:
    """One text of a megabyte that 4,300 rows name."""
    word, indices = pa.array(["x" * 1_000_000]), pa.array([0] * 4_300, pa.int32())
    return packed(pa.table({"a": pa.DictionaryArray.from_arrays(indices, word)}))


def equal_numbers() -> bytes:
    """Sixty million rows with one number, which run-length encoding writes in a few bytes."""
    zeros = pa.Array.from_buffers(pa.int8(), 60_000_000, [None, pa.py_buffer(bytes(60_000_000))])
    return packed(pa.table({"a": zeros, "b": zeros}))


def long_list() -> bytes:
    """One row whose list of 200 million booleans takes 25 MB in Arrow and 1.6 GB in Python."""
    count = 200_000_000
    bits = pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes(count // 8))])
    offsets = pa.array([0, count], pa.int32())
    return packed(pa.table({"a": pa.ListArray.from_arrays(offsets, bits)}))


def many_columns() -> bytes:
    return packed(pa.table({f"c{n}": [n] for n in range(5_000)}))


BOMBS: dict[str, Callable[[], bytes]] = {
    "dictionary": dictionary,
    "equal numbers": equal_numbers,
    "long list": long_list,
    "many columns": many_columns,
}


def upload(control: ControlProcess, data: bytes) -> tuple[int, dict[str, object]]:
    return control.call("POST", "/v1/datasets?namespace=team-a&name=x.parquet", data)


def test_a_parquet_file_that_decodes_to_gigabytes_is_refused_and_an_honest_one_is_not(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as control:
        assert upload(control, packed(HONEST))[0] == 201
        before = control.peak_bytes()
        for name, bomb in BOMBS.items():
            status, told = upload(control, bomb())
            assert status == 400, (name, told)
            error = told["error"]
            assert isinstance(error, dict)
            assert error["where"] == "x.parquet" or "columns" in str(error["message"]), error
            assert error["remedy"], name
        assert control.peak_bytes() - before <= GROWTH_BYTES_MAX
        status, stored = upload(control, packed(HONEST))
        assert (status, stored["rows"]) == (201, 500)
        assert control.call("GET", "/healthz")[0] == 200
