"""Writes the outputs of a run to a folder: a file for each, or one for each row of a data set."""

import csv
import json as json_text
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import msgspec

from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_core.catalog.templates import context, environment, undeclared
from flowmesh_sdk.rows import Rows
from flowmesh_store.unpacking import unpack


def write_row_files(
    rows: Iterable[Mapping[str, Any]], folder: Path, template: str, column: str
) -> int:
    """Writes a file for each row, and returns their number.

    Args:
        rows: of a data set.
        folder: where to; created.
        template: of the files' names, below the folder.
        column: with the content: text as it is, other values as JSON.

    Raises:
        CliError: the template is wrong, a name leaves the folder or is that of two rows, or there
            is no such column.
    """
    problem, _ = undeclared(template)
    if problem:
        raise CliError(problem, ExitCode.USAGE, where="--files")
    name_of = environment().from_string(template)
    written: set[Path] = set()
    _create(folder)
    for row in rows:
        if column not in row:
            raise CliError(
                f"there is no column {column!r}{nearest(column, row)}",
                ExitCode.USAGE,
                where="--column",
                remedy=f"there are {', '.join(row)}",
            )
        try:
            path = _path(folder, name_of.render(context(dict(row))))
        except jinja2.TemplateError as e:
            raise CliError(str(e), ExitCode.USAGE, where="--files") from e
        if path in written:
            raise CliError(
                f"two rows have the name {str(path.relative_to(folder))!r}",
                ExitCode.USAGE,
                where="--files",
                remedy="write a template of columns that differ, such as '{{ id }}.md'",
            )
        written.add(path)
        value = row[column]
        text = value if isinstance(value, str) else json_text.dumps(value, ensure_ascii=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as e:
            raise CliError(
                f"cannot be written: {e.strerror}", ExitCode.USAGE, where=str(path)
            ) from e
    return len(written)


def _path(folder: Path, name: str) -> Path:
    """Returns the path of a row's file, whose name the row chooses: it must stay in the folder."""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise CliError(
            f"{name!r} is not the name of a file in the folder",
            ExitCode.USAGE,
            where="--files",
            remedy="write a template that gives relative names without `..`, such as '{{ id }}.md'",
        )
    return folder.joinpath(*parts)


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise CliError(f"cannot be created: {e.strerror}", ExitCode.USAGE, where=str(folder)) from e


def download_outputs(
    http: ApiClient,
    uid: str,
    outputs: Mapping[str, dict[str, Any] | None],
    folder: Path,
    format_: str,
    *,
    partial: bool,
) -> dict[str, Path]:
    """Writes each output that there is to a file or folder; returns their paths.

    Args:
        http: the fabric.
        uid: of the run.
        outputs: by name, as the status has them.
        folder: where to; created.
        format_: of data sets, one of ``DOWNLOADED_FORMATS``.
        partial: whether to write what is published so far.
    """
    _create(folder)
    written = {}
    for name, output in outputs.items():
        described = output or ({"kind": "dataset"} if partial else None)
        if described is not None and not described.get("revoked"):
            content = f"/v1/runs/{uid}/outputs/{name}"
            query = {"partial": 1} if partial else {}
            written[name] = _write(http, content, query, described["kind"], folder, format_)
    return written


def _write(
    http: ApiClient, content: str, query: dict[str, int], kind: str, folder: Path, format_: str
) -> Path:
    name = content.rpartition("/")[2]
    if kind == "dataset" and format_ == "jsonl":
        path = folder / f"{name}.jsonl"
        http.download(content, path, **query)
    elif kind == "dataset":
        path = folder / f"{name}.{format_}"
        write_table(Rows(http, content, count=None, partial=bool(query)), path, format_)
    elif kind == "metrics":
        path = folder / f"{name}.json"
        values = json_text.loads(http.call("GET", content, query=query))
        path.write_text(json_text.dumps(values, indent=2, sort_keys=True) + "\n")
    elif kind in ("model", "adapter"):
        path = folder / name
        packed = folder / f".{name}.tar"
        http.download(content, packed, **query)
        with tarfile.open(packed) as tar:
            unpack(tar, path)
        packed.unlink()
    else:
        path = folder / name
        http.download(content, path, **query)
    return path


def write_table(rows: Rows, target: Path, format_: str) -> None:
    """Writes rows with the types of their data set as CSV or Parquet, whole or not at all."""
    temporary = target.with_name(f".{target.name}.part")
    try:
        with rows.arrow_reader() as reader:
            if format_ == "csv":
                _write_csv(reader, temporary)
            else:
                _write_parquet(reader, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _write_csv(reader: Any, target: Path) -> None:
    names = reader.schema.names
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for batch in reader:
            writer.writerows([plain(row[name]) for name in names] for row in batch.to_pylist())


def _write_parquet(reader: Any, target: Path) -> None:
    # Imported here: pyarrow loads in a third of a second, and JSON Lines do not need it.
    from pyarrow import parquet  # noqa: PLC0415

    with parquet.ParquetWriter(target, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def plain(value: Any) -> Any:
    """Returns a value as CSV has it: text and numbers as they are, bytes in base64, others JSON."""
    if value is None or (isinstance(value, (int, float, str)) and not isinstance(value, bool)):
        return value
    encoded = msgspec.json.encode(value).decode()
    return encoded.strip('"') if isinstance(value, bytes) else encoded
