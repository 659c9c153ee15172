"""Reads the lines of a batch's input file: requests, and lines that are wrong.

A line that is wrong has a place in the batch's error file and does not end the batch. What concerns
the whole file (two models, too many lines, no request at all) does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from flowmesh_core.openai.errors import OpenAiError, invalid_type, missing_parameter
from flowmesh_core.openai.parameters import Check, choice, require_members, text
from flowmesh_core.openai.request import MAX_BODY_BYTES, OpenAiRequest, check_request

MAX_LINES = 50_000
MAX_LINE_BYTES = MAX_BODY_BYTES + 65_536
MAX_ID_CHARS = 512
_SHOWN = 80


class BatchFileError(OpenAiError):
    """A file that cannot be a batch.

    Attributes:
        line: the first line at fault, from 1; None for the whole file.
    """

    def __init__(self, message: str, code: str, line: int | None = None) -> None:
        super().__init__(message, code=code)
        self.line = line


@dataclass(frozen=True, slots=True)
class WrongLine:
    """A line that is not sent; ``custom_id`` is None where it cannot be read."""

    number: int
    custom_id: str | None
    error: OpenAiError


@dataclass(slots=True)
class BatchLines:
    """What is known of a file after reading it.

    Attributes:
        custom_ids: of the requests, in order.
        wrong: the other lines.
        model: that all requests name.
    """

    custom_ids: list[str] = field(default_factory=list)
    wrong: list[WrongLine] = field(default_factory=list)
    model: str = ""

    @property
    def total(self) -> int:
        """The number of lines that are not blank."""
        return len(self.custom_ids) + len(self.wrong)


def read_requests(lines: Iterable[bytes], endpoint: str, found: BatchLines) -> Iterator[bytes]:
    """Yields a row ``{url, body}`` as JSON for each request.

    Args:
        lines: of the file; one that is longer than ``MAX_LINE_BYTES`` may be cut there.
        endpoint: the path that all requests must have.
        found: filled with what else is known.

    Raises:
        BatchFileError: the file cannot be a batch.
    """
    known: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if found.total >= MAX_LINES:
            raise BatchFileError(
                f"The file has more than {MAX_LINES} lines; split it.", "too_many_lines", number
            )
        custom_id: str | None = None
        try:
            given = _parsed(line)
            custom_id = _custom_id(given, known)
            request = _request(given, endpoint)
        except OpenAiError as e:
            found.wrong.append(WrongLine(number, custom_id, e))
            continue
        _require_model(request.model, found, number)
        known.add(custom_id)
        found.custom_ids.append(custom_id)
        yield orjson.dumps({"url": request.path, "body": request.body})
    if not found.custom_ids:
        _refuse_without_request(found)


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise OpenAiError(f"The line is longer than {MAX_LINE_BYTES} bytes.", code="too_large")
    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError as e:
        raise OpenAiError(f"The line is not JSON: {e}", code="invalid_json_line") from None
    if not isinstance(given, dict):
        raise invalid_type("line", "an object", given)
    return given


def _custom_id(given: dict[str, Any], known: set[str]) -> str:
    custom_id = given.get("custom_id")
    if custom_id is None:
        raise missing_parameter("custom_id")
    text(custom_id, "custom_id")
    if not 1 <= len(custom_id) <= MAX_ID_CHARS:
        raise OpenAiError(
            f"Invalid 'custom_id': expected 1 to {MAX_ID_CHARS} characters.", param="custom_id"
        )
    if custom_id in known:
        raise OpenAiError(
            f"The custom_id {custom_id[:_SHOWN]!r} is that of an earlier line.",
            param="custom_id",
            code="duplicate_custom_id",
        )
    return str(custom_id)


def _any_value(value: Any, param: str) -> None:
    """Accepts a value that is checked elsewhere."""


def _request(given: dict[str, Any], endpoint: str) -> OpenAiRequest:
    members: dict[str, Check] = {
        "custom_id": text,
        "method": choice("POST"),
        "url": choice(endpoint),
        "body": _any_value,
    }
    require_members(given, "", members, "method", "url", "body")
    return check_request(endpoint, given["body"], streams=False)


def _require_model(model: str, found: BatchLines, number: int) -> None:
    if not found.model:
        found.model = model
    elif model != found.model:
        raise BatchFileError(
            f"line {number} names another model, {model[:_SHOWN]!r}: all lines of a file"
            f" have one model, here {found.model[:_SHOWN]!r}",
            "mismatched_model",
            number,
        )


def _refuse_without_request(found: BatchLines) -> None:
    if not found.wrong:
        raise BatchFileError("The input file has no lines.", "empty_file")
    first = found.wrong[0]
    raise BatchFileError(
        f"None of the {len(found.wrong)} lines is a request; line {first.number}:"
        f" {first.error.message}",
        first.error.code or "invalid_request",
        first.number,
    )
