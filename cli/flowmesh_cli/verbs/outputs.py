"""``fmesh outputs``: shows a run's outputs or writes them to a folder."""

import json as json_text
import tarfile
from pathlib import Path

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.runs import describe_output
from flowmesh_store.unpacking import unpack

FORMATS = ("jsonl", "csv", "parquet")


def show_outputs(
    run: str,
    *,
    download: Path | None,
    format_: str,
    partial: bool,
    place: Target,
    as_json: bool,
) -> None:
    """Shows a run's outputs, or writes them to a folder.

    With ``partial`` it writes what is published so far, also of a run that has not ended.
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
        uid = find_run(http, run)
        status = http.get(f"/v1/runs/{uid}", RunStatus)
        if status.phase not in ENDED_PHASES and not partial:
            raise CliError(
                f"{uid} has not ended: {status.phase}",
                ExitCode.NOT_FOUND,
                remedy=f"`fmesh watch {uid}` follows it",
            )
        written = {} if download is None else _download(http, status, download, format_, partial)
    if as_json:
        files = {name: str(path) for name, path in written.items()}
        terminal.answer({"uid": uid, "outputs": status.outputs, "files": files})
        return
    for name, output in status.outputs.items():
        where = f" -> {written[name]}" if name in written else ""
        terminal.text(f"{name}: {describe_output(output, status)}{where}")
        if output and output.get("reference") and not where:
            terminal.text(f"  {output['reference']}")
    if not status.outputs:
        terminal.note("the workflow declares no outputs")


def _download(
    http: ApiClient, status: RunStatus, folder: Path, format_: str, partial: bool
) -> dict[str, Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise CliError(f"cannot be created: {e.strerror}", ExitCode.USAGE, where=str(folder)) from e
    written = {}
    for name, output in status.outputs.items():
        described = output or ({"kind": "dataset"} if partial else None)
        if described is not None and not described.get("revoked"):
            content = f"/v1/runs/{status.uid}/outputs/{name}"
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
