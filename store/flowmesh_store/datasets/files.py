"""Files that users bring and take away: JSON Lines, JSON, CSV and Parquet.

The import engine and the CLI's uploads read them; errors name the line. CSV has no types: its
columns are strings, but for those whose every value is an integer, a number or ``true``/``false``.
"""

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import orjson

from flowmesh_core.errors import BlobCorruptError, IdentityError
from flowmesh_store.datasets.parquet import read_parquet

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_DIGITS_MAX = 20
_INT64 = range(-(2**63), 2**63)
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def read_rows_file(name: str, data: bytes) -> Sequence[Mapping[str, Any]] | Any:
    """Reads a file by its name's ending.

    Args:
        name: the file's name; ``.jsonl``/``.ndjson``, ``.json``, ``.csv``, ``.tsv`` or
            ``.parquet``.
        data: its content.

    Returns:
        Rows, or for Parquet a ``pyarrow.Table``: what :func:`rows_to_chunks` takes.

    Raises:
        IdentityError: an unknown ending, or content that is not of it; names the line.
    """
    ending = PurePath(name).suffix.lower()
    reader = _READERS.get(ending)
    if reader is None:
        raise IdentityError(
            f"{ending or 'no ending'} is no format of rows",
            where=name,
            remedy=f"use one of {', '.join(sorted(_READERS))}",
        )
    return reader(data, name)


def read_jsonl(data: bytes, name: str = "file") -> list[dict[str, Any]]:
    """Rows of a JSON Lines file; blank lines are skipped.

    Raises:
        IdentityError: names the line that is no JSON object.
    """
    rows = []
    for number, line in enumerate(_without_mark(data).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as e:
            raise IdentityError(
                f"no JSON ({e.msg}, column {e.colno})",
                where=f"{name}, line {number}",
                remedy="each line must be one JSON object",
            ) from e
        _refuse_long_integers(line, f"{name}, line {number}")
        rows.append(_object(row, f"{name}, line {number}"))
    return rows


def read_json(data: bytes, name: str = "file") -> list[dict[str, Any]]:
    """Rows of a JSON file that holds a list of objects.

    Raises:
        IdentityError: names the line of a syntax error, or the row that is no object.
    """
    try:
        value = orjson.loads(_without_mark(data))
    except orjson.JSONDecodeError as e:
        raise IdentityError(
            f"no JSON ({e.msg}, column {e.colno})",
            where=f"{name}, line {e.lineno}",
            remedy="the file must be a list of objects; one object a line is .jsonl",
        ) from e
    _refuse_long_integers(data, name)
    if not isinstance(value, list):
        raise IdentityError("not a list of objects", where=name, remedy="write [ {...}, {...} ]")
    return [_object(row, f"{name}, row {i}") for i, row in enumerate(value, 1)]


def read_csv(data: bytes, name: str = "file", *, delimiter: str = ",") -> list[dict[str, Any]]:
    """Rows of a CSV file whose first line names the columns; empty values are null.

    Raises:
        IdentityError: names the line with too many or too few values, or with bytes that are no
            UTF-8.
    """
    try:
        text = _without_mark(data).decode()
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise IdentityError("no UTF-8", where=f"{name}, line {line}", remedy="convert it") from e
    header, values = _csv_lines(text, name, delimiter)
    columns = [_csv_column([row[i] for row in values]) for i in range(len(header))]
    if not columns:
        return []
    return [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]


def rows_to_jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as JSON Lines for download; bytes in base64."""
    option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS
    return b"".join(orjson.dumps(row, default=_download_form, option=option) for row in rows)


def _csv_lines(text: str, name: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    values: list[list[str]] = []
    try:
        for row in reader:
            if not header:
                header = row
                if len(set(header)) != len(header):
                    raise IdentityError("a column is named twice", where=f"{name}, line 1")
            elif row and len(row) != len(header):
                raise IdentityError(
                    f"{len(row)} values where the first line names {len(header)} columns",
                    where=f"{name}, line {reader.line_num}",
                    remedy="quote values that hold the delimiter",
                )
            elif row:
                values.append(row)
    except csv.Error as e:
        raise IdentityError(f"no CSV ({e})", where=f"{name}, line {reader.line_num}") from e
    return header, values


def _csv_column(values: Sequence[str]) -> list[Any]:
    given = [v for v in values if v]
    reader: Callable[[str], Any] = str
    if given and all(_INTEGER.fullmatch(v) for v in given):
        if all(len(v) <= _DIGITS_MAX and int(v) in _INT64 for v in given):
            reader = int  # longer ones stay text: as floats they would lose digits
    elif given and all(_NUMBER.fullmatch(v) for v in given):
        reader = float
    elif given and all(v in ("true", "false") for v in given):
        reader = "true".__eq__
    return [reader(v) if v else None for v in values]


def _refuse_long_integers(data: bytes, where: str) -> None:
    """Refuses what orjson reads as floats, and so loses digits of."""

    def read(digits: str) -> int:
        if len(digits) > _DIGITS_MAX or int(digits) not in _INT64:
            raise IdentityError(
                f"the integer {digits[:_DIGITS_MAX]}{'…' * (len(digits) > _DIGITS_MAX)}"
                " does not fit into 64 bits",
                where=where,
                remedy="put it in quotes, and no digit is lost",
            )
        return int(digits)

    if _LONG_NUMBER.search(data):
        try:
            json.loads(_without_mark(data), parse_int=read)
        except RecursionError as e:
            raise IdentityError("nested too deeply", where=where, remedy="flatten it") from e


def _without_mark(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise IdentityError(
            "not a JSON object", where=where, remedy='a row looks like {"question": "…"}'
        )
    return value


def _download_form(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _read_tsv(data: bytes, name: str) -> list[dict[str, Any]]:
    return read_csv(data, name, delimiter="\t")


def _read_parquet(data: bytes, name: str) -> Any:
    try:
        return read_parquet(data)
    except BlobCorruptError as e:
        raise IdentityError("no Parquet file", where=name, remedy="write it again") from e


_READERS: Mapping[str, Callable[[bytes, str], Any]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
