"""How much an answer of the user's code may be: in bytes, and in what it becomes."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.code.answer_size import decoded_bytes
from flowmesh_worker.engines.code.answers import AnswerBytes
from flowmesh_worker.engines.code.limits import SandboxResult

VALUES: list[Any] = [
    [{} for _ in range(1_000)],
    [{"": None} for _ in range(1_000)],
    [[] for _ in range(1_000)],
    [{"a": n, "b": n / 3, "c": "x" * 40} for n in range(1_000)],
    [{f"k{n}": [n, -n, 2**40, 1.5, True, None] for n in range(500)}],
    ["日本語 \U0001f600" * 50, "a" * 70_000, "b" * 300, b"c" * 300, b"d" * 70_000],
    [{str(n): n for n in range(70_000)}, list(range(70_000))],
    [2**63, -(2**63), 200, -200, 40_000, -40_000, 2**33, -(2**33), -1, 0.5] * 100,
]


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[AnswerBytes]:
    with AnswerBytes(64, tmp_path) as answer:
        yield answer


def sizes(value: Any) -> int:
    """What a value and those in it take; each is counted, as if none were shared."""
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    more = sum(map(sizes, inner)) if isinstance(inner, list) else 0
    return sys.getsizeof(value) + more


@pytest.mark.parametrize("value", VALUES)
def test_the_memory_of_values_is_estimated_without_decoding_them(value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    found = decoded_bytes(data, len(data) * 90)  # so that it counts, and does not estimate
    made = sizes(msgspec.msgpack.decode(data))
    assert made * 0.9 <= found <= made * 5


def test_values_after_an_extension_are_counted() -> None:
    extensions = [msgspec.msgpack.Ext(5, b"x" * n) for n in (1, 2, 4, 8, 16, 3, 300, 70_000)]
    data = msgspec.msgpack.encode([extensions, [{} for _ in range(1_000)]])
    assert 70_000 + 64_000 <= decoded_bytes(data, len(data) * 90) <= 150_000


def test_counting_stops_at_the_limit() -> None:
    assert 1_000 < decoded_bytes(b"\xdd\xff\xff\xff\xff" + bytes(1_000), 1_000) <= 40 << 30
    assert decoded_bytes(b"\x80" * 1_000_000, 10_000) <= 10_100


@pytest.mark.parametrize("rows", [0, 50_000, 500_000])
async def test_an_answer_that_comes_in_pieces_is_read(rows: int, tmp_path: Path) -> None:
    answer = SandboxResult(rows=[{"number": n, "text": "text"} for n in range(rows)])
    data = msgspec.msgpack.encode(answer)
    with AnswerBytes(64, tmp_path) as taken:
        for start in range(0, len(data), 10_000):
            await taken.take(data[start : start + 10_000])
        assert taken.decoded() == answer
    assert os.listdir(tmp_path) == []


async def test_a_full_disk_is_no_fault_of_the_code() -> None:
    refused = pytest.raises(AttemptError, match="could not be written to the disk")
    with AnswerBytes(64, Path("/proc")) as taken, refused as e:
        await taken.take(bytes(9 << 20))
    assert e.value.failure.kind is FailureKind.ENGINE


async def test_an_answer_is_as_large_as_the_codes_memory_at_most(taken: AnswerBytes) -> None:
    for _ in range(64):
        await taken.take(bytes(1 << 20))
    with pytest.raises(AttemptError, match="the code returned more than 64 MiB; return less") as e:
        await taken.take(b"x")
    assert e.value.failure.kind is FailureKind.USER_CODE


async def test_a_small_answer_that_decodes_to_too_many_objects_is_not_decoded(
    taken: AnswerBytes,
) -> None:
    count = 20_000_000
    await taken.take(b"\x81\xa4rows\xdd" + count.to_bytes(4) + b"\x80" * count)
    with pytest.raises(AttemptError, match="would take more than 320 MiB of memory") as e:
        taken.decoded()
    assert e.value.failure.kind is FailureKind.USER_CODE
