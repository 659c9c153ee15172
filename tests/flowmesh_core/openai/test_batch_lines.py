"""Lines of a batch's input file: which are requests, which are wrong, and which files are none."""

from typing import Any

import orjson
import pytest

from flowmesh_core.openai import batch_lines
from flowmesh_core.openai.batch_lines import BatchFileError, BatchLines, read_requests

CHAT = "/v1/chat/completions"


def line(custom_id: Any = "a", **changes: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    given = {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body, **changes}
    return orjson.dumps(given) + b"\n"


def read(*lines: bytes) -> tuple[list[Any], BatchLines]:
    found = BatchLines()
    return [orjson.loads(r) for r in read_requests(lines, CHAT, found)], found


def test_requests_become_rows_without_their_custom_id() -> None:
    rows, found = read(line("a"), b"\n", line("b"))
    assert [r.keys() for r in rows] == [{"url", "body"}] * 2
    assert rows[0] == rows[1]
    assert (found.custom_ids, found.model, found.total, found.wrong) == (["a", "b"], "m", 2, [])


@pytest.mark.parametrize(
    ("wrong", "custom_id", "code"),
    [
        (b"{\n", None, "invalid_json_line"),
        (b"[1]\n", None, "invalid_type"),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, None, "invalid_json_line"),
        (line(None), None, "missing_required_parameter"),
        (line(7), None, "invalid_type"),
        (line("a"), None, "duplicate_custom_id"),
        (line("x", method="GET"), "x", "invalid_value"),
        (line("x", url="/v1/embeddings"), "x", "invalid_value"),
        (line("x", body=[1]), "x", "invalid_type"),
        (line("x", more=1), "x", "unknown_parameter"),
        (line("x", body={"model": "m", "messages": ["a"], "priority": 1}), "x", "invalid_type"),
        (b" " * batch_lines.MAX_LINE_BYTES + line("x"), None, "too_large"),
    ],
)
def test_a_wrong_line_is_noted_and_the_others_are_read(
    wrong: bytes, custom_id: str | None, code: str
) -> None:
    rows, found = read(line("a"), wrong, line("b"))
    assert len(rows) == 2
    [noted] = found.wrong
    assert (noted.number, noted.custom_id, noted.error.code) == (2, custom_id, code)


def test_two_models_in_one_file_are_refused_with_the_line() -> None:
    other = orjson.loads(line("b"))["body"] | {"model": "n"}
    with pytest.raises(BatchFileError, match="line 2 names another model") as e:
        read(line("a"), line("b", body=other))
    assert (e.value.line, e.value.code) == (2, "mismatched_model")


def test_a_file_without_requests_is_refused() -> None:
    with pytest.raises(BatchFileError, match="no lines"):
        read(b"\n")
    with pytest.raises(BatchFileError, match="None of the 1 lines"):
        read(b"{\n")


def test_a_file_with_too_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lines, "MAX_LINES", 2)
    with pytest.raises(BatchFileError, match="more than 2 lines"):
        read(line("a"), line("b"), line("c"))
