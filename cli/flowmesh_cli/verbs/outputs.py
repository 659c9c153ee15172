"""``fmesh outputs``: shows a run's outputs or writes them to a folder."""

import json as json_text
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.rows import show_rows
from flowmesh_cli.views.runs import describe_output
from flowmesh_sdk.rows import Rows
from flowmesh_store.unpacking import unpack

FORMATS = ("jsonl", "csv", "parquet")


def show_outputs(
    run: str,
    *,
    download: Path | None,
    format_: str,
    partial: bool,
    head: int,
    columns: Sequence[str],
    place: Target,
    as_json: bool,
) -> None:
    """Shows a run's outputs, or writes them to a folder.

    Args:
        run: what the user named; ``RUN/OUTPUT`` for one output.
        download: the folder; None to show them.
        format_: of data sets.
        partial: whether to write what is published so far, also of a run that has not ended.
        head: rows of each data set to show.
        columns: those to show; all where empty.
        place: the fabric.
        as_json: whether to answer in JSON.
    """
    if format_ not in FORMATS:
        raise CliError(
            f"{format_!r} is not a format",
            ExitCode.USAGE,
            where="--format",
            remedy=f"use one of {', '.join(FORMATS)}",
        )
    if partial and download is None:
        raise CliError(
            "--partial has no effect without --download",
            ExitCode.USAGE,
            where="--partial",
            remedy="name a folder: --download DIR",
        )
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        status, outputs = _named(http, run)
        uid = status.uid
        if status.phase not in ENDED_PHASES and not partial:
            raise CliError(
                f"{uid} has not ended: {status.phase}",
                ExitCode.NOT_FOUND,
                remedy=f"`fmesh watch {uid}` follows it",
            )
        written = (
            {}
            if download is None
            else _download(http, uid, outputs, download, format_, partial=partial)
        )
        rows = read_heads(http, uid, outputs, head, columns) if head else {}
    if as_json:
        files = {name: str(path) for name, path in written.items()}
        answer = {"uid": uid, "outputs": outputs, "files": files}
        terminal.answer({**answer, "rows": rows} if head else answer)
        return
    for name, output in outputs.items():
        where = f" -> {written[name]}" if name in written else ""
        terminal.text(f"{name}: {describe_output(output, status)}{where}")
        if output and output.get("reference") and not where:
            terminal.text(f"  {output['reference']}")
        show_rows(terminal, rows.get(name, ()), columns=columns)
    if not outputs:
        terminal.note("the workflow declares no outputs")


def read_heads(
    http: ApiClient,
    uid: str,
    outputs: Mapping[str, dict[str, Any] | None],
    head: int,
    columns: Sequence[str] = (),
) -> dict[str, list[dict[str, Any]]]:
    """Returns the first rows of each data set among a run's outputs, by name.

    Raises:
        CliError: a data set has not all of the columns.
    """
    found = {}
    for name, output in outputs.items():
        if output and output.get("kind") == "dataset" and not output.get("revoked"):
            rows = Rows(http, f"/v1/runs/{uid}/outputs/{name}", count=output.get("rows"))
            found[name] = [_chosen(name, row, columns) for row in rows.head(head)]
    return found


def _chosen(name: str, row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    wrong = next((column for column in columns if column not in row), None)
    if wrong is not None:
        raise CliError(
            f"output {name!r} has no column {wrong!r}{nearest(wrong, row)}",
            ExitCode.USAGE,
            where="--columns",
            remedy=f"it has {', '.join(row)}",
        )
    return {column: row[column] for column in columns} if columns else row


def _named(http: ApiClient, text: str) -> tuple[RunStatus, dict[str, dict[str, Any] | None]]:
    """Returns the run that the user named, and its outputs or the one that is named as well.

    A namespace may come before the name of a run too, so the run is tried first.
    """
    try:
        uid, name = find_run(http, text), ""
    except CliError:
        run, sign, name = text.rpartition("/")
        if not sign:
            raise
        uid = find_run(http, run)
    status = http.get(f"/v1/runs/{uid}", RunStatus)
    if not name:
        return status, status.outputs
    if name not in status.outputs:
        raise CliError(
            f"no output {name!r}{nearest(name, status.outputs)}",
            ExitCode.NOT_FOUND,
            where=uid,
            remedy=f"it has {', '.join(status.outputs) or 'none'}",
        )
    return status, {name: status.outputs[name]}


def _download(
    http: ApiClient,
    uid: str,
    outputs: Mapping[str, dict[str, Any] | None],
    folder: Path,
    format_: str,
    *,
    partial: bool,
) -> dict[str, Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise CliError(f"cannot be created: {e.strerror}", ExitCode.USAGE, where=str(folder)) from e
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
    if kind == "dataset":
        path = folder / f"{name}.{format_}"
        rows = folder / f".{name}.jsonl"
        http.download(content, rows, **query)
        _convert(rows, path, format_)
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


def _convert(rows: Path, target: Path, format_: str) -> None:
    """Converts rows from JSON Lines to the requested format."""
    if format_ == "jsonl":
        rows.replace(target)
        return
    # Imported here: pyarrow loads in a third of a second, and JSON Lines do not need it.
    from pyarrow import csv, json, parquet  # noqa: PLC0415
    from pyarrow import table as table_of  # noqa: PLC0415

    table = json.read_json(rows) if rows.stat().st_size else table_of({})
    if format_ == "csv":
        csv.write_csv(table, target)
    else:
        parquet.write_table(table, target)
    rows.unlink()
