"""Files of rows in the formats of users: JSON Lines, JSON, CSV and Parquet.

The import engine and the CLI's uploads read them; errors name the line. CSV has no types: a column
is a string, unless every value is an integer, a number or ``true``/``false``. What would lose
digits or keys is refused.
"""

import base64
import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import orjson

from flowmesh_core.errors import BlobCorruptError, ContentLimitError, IdentityError
from flowmesh_store.datasets.csv_records import Values, records
from flowmesh_store.datasets.csv_types import ColumnKind
from flowmesh_store.datasets.lossless_json import refuse_losses
from flowmesh_store.datasets.parquet import decoded_sizes, read_parquet

_TOO_DEEP = "depth limit exceeded"
LINE_REMEDY = "each line must be one JSON object"
LIST_REMEDY = "the file must be a list of objects; one object a line is .jsonl"


def read_rows_file(
    name: str, data: bytes, *, decoded_bytes_max: int | None = None
) -> Sequence[Mapping[str, Any]] | Any:
    """Reads a file in the format of its name's suffix.

    Args:
        name: the file's name; ``.jsonl``/``.ndjson``, ``.json``, ``.csv``, ``.tsv`` or
            ``.parquet``.
        data: its content.
        decoded_bytes_max: the largest decoded size of Parquet, in Arrow's memory; None for no
            bound.

    Returns:
        Rows, or for Parquet a ``pyarrow.Table``, for :func:`rows_to_chunks`.

    Raises:
        IdentityError: an unknown suffix, or content of another format; names the line.
        ContentLimitError: Parquet is too large when decoded.
    """
    ending = PurePath(name).suffix.lower()
    reader = _READERS.get(ending)
    if reader is None:
        raise unknown_format(name)
    if decoded_bytes_max is not None and reader is _read_parquet:
        _refuse_large_parquet(data, name, decoded_bytes_max)
    return reader(data, name)


def unknown_format(name: str) -> IdentityError:
    """Returns the error for a file whose name has no known suffix."""
    ending = PurePath(name).suffix.lower()
    return IdentityError(
        f"{ending} is not a format of rows" if ending else "the name has no ending such as .csv",
        where=name,
        remedy=f"use one of {', '.join(sorted(_READERS))}",
    )


def read_jsonl(data: bytes, name: str = "file") -> list[dict[str, Any]]:
    """Returns the rows of a JSON Lines file; blank lines are skipped.

    Raises:
        IdentityError: a line is not a JSON object; names it.
    """
    rows = []
    for number, line in enumerate(_without_mark(data).split(b"\n"), 1):
        if not line.strip():
            continue
        rows.append(jsonl_row(line, f"{name}, line {number}"))
    return rows


def jsonl_row(line: bytes, where: str) -> dict[str, Any]:
    """Returns the row in a line of a JSON Lines file.

    Raises:
        IdentityError: it is not a JSON object; names the place.
    """
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as e:
        raise no_json(e, where, LINE_REMEDY) from e
    refuse_losses(line, row, where)
    return json_object(row, where)


def no_json(error: orjson.JSONDecodeError, where: str, remedy: str) -> IdentityError:
    """Returns the error for bytes that are not JSON, or are nested too deeply."""
    if error.msg == _TOO_DEEP:
        return ContentLimitError("nested too deeply", where=where, remedy="flatten it")
    reason = f"not JSON ({error.msg}, column {error.colno})"
    return IdentityError(reason, where=where, remedy=remedy)


def read_json(data: bytes, name: str = "file") -> list[dict[str, Any]]:
    """Returns the rows of a JSON file that is a list of objects.

    Raises:
        IdentityError: names the line of a syntax error, or the row that is not an object.
    """
    data = _without_mark(data)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise no_json(e, f"{name}, line {e.lineno}", LIST_REMEDY) from e
    refuse_losses(data, value, name)
    if not isinstance(value, list):
        raise IdentityError("not a list of objects", where=name, remedy="write [ {...}, {...} ]")
    return [json_object(row, f"{name}, row {i}") for i, row in enumerate(value, 1)]


def read_csv(data: bytes, name: str = "file", *, delimiter: str = ",") -> list[dict[str, Any]]:
    """Returns the rows of a CSV file whose first line names the columns.

    An empty field is null, ``""`` is the empty string.

    Raises:
        IdentityError: names the line with too many or too few values, or with bytes that are not
            UTF-8, or the row and column of a number whose digits would be lost.
    """
    try:
        text = _without_mark(data).decode()
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise IdentityError("not UTF-8", where=f"{name}, line {line}", remedy="convert it") from e
    header, values = _csv_lines(text, name, delimiter)
    columns = [
        _csv_column([row[i] for row in values], column, name) for i, column in enumerate(header)
    ]
    if not columns:
        return []
    return [dict(zip(header, row, strict=True)) for row in zip(*columns, strict=True)]


def rows_to_jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Returns rows as JSON Lines for download; bytes in base64."""
    option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS
    return b"".join(orjson.dumps(row, default=_download_form, option=option) for row in rows)


def _csv_lines(text: str, name: str, delimiter: str) -> tuple[list[str], list[Values]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    header: list[str] = []
    values: list[Values] = []
    for row, line in records(io.StringIO(text, newline=""), name, delimiter):
        if not header:
            header = [column or "" for column in row]
            if len(set(header)) != len(header):
                raise IdentityError("a column is named twice", where=f"{name}, line 1")
        elif row and len(row) != len(header):
            raise IdentityError(
                f"{len(row)} values where the first line names {len(header)} columns",
                where=f"{name}, line {line}",
                remedy="quote values that contain the delimiter",
            )
        elif row:
            values.append(row)
    return header, values


def _csv_column(values: Values, column: str, name: str) -> list[Any]:
    kind = ColumnKind()
    kind.add(values)
    return kind.read(values, column, name)


def _without_mark(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf")


def json_object(value: Any, where: str) -> dict[str, Any]:
    """Returns the value if it is an object.

    Raises:
        IdentityError: it is not; names the place.
    """
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


def _refuse_large_parquet(data: bytes, name: str, most: int) -> None:
    """Refuses a file by its decoded size, counted in batches before it is decoded whole."""
    try:
        size = 0
        for size in decoded_sizes(data):
            if size > most:
                break
    except BlobCorruptError as e:
        raise IdentityError("not a Parquet file", where=name, remedy="write it again") from e
    if size > most:
        raise ContentLimitError(
            f"the file decodes to more than {most >> 20} MiB",
            where=name,
            remedy="split it, or give the step more memory with resources.memory",
        )


def _read_parquet(data: bytes, name: str) -> Any:
    try:
        return read_parquet(data)
    except BlobCorruptError as e:
        raise IdentityError("not a Parquet file", where=name, remedy="write it again") from e


_READERS: Mapping[str, Callable[[bytes, str], Any]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
