"""``fmesh outputs``: shows a run's outputs or writes them to a folder."""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run_and_output
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode, worst
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.output_files import download_outputs, plain, write_row_files
from flowmesh_cli.verbs.output_formats import DOWNLOADED_FORMATS, FORMATS_TEXT, SHOWN_FORMATS
from flowmesh_cli.views import formatting
from flowmesh_cli.views.rows import show_rows
from flowmesh_cli.views.runs import describe_output
from flowmesh_sdk.rows import Rows


def show_outputs(
    run: str,
    *,
    download: Path | None,
    format_: str,
    partial: bool,
    files: str,
    column: str,
    head: int,
    columns: Sequence[str],
    place: Target,
    as_json: bool,
) -> None:
    """Shows a run's outputs, or writes them to a folder.

    Args:
        run: what the user named; ``RUN/OUTPUT`` for one output.
        download: the folder; None to show them.
        format_: of data sets that are downloaded, or of the rows that ``head`` shows.
        partial: whether to write what is published so far, also of a run that has not ended.
        files: template of the names of files, one for each row; empty for a file an output.
        column: with the content of these files.
        head: rows of each data set to show.
        columns: those to show; all where empty.
        place: the fabric.
        as_json: whether to answer in JSON.

    Raises:
        CliError: the run has not ended, or an option cannot be used.
        Exit: an output was to be downloaded that the run has not, since it failed.
    """
    _refuse_format(format_, download, head)
    _refuse_options(
        download, partial=partial, files=files, column=column, head=head, columns=columns
    )
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        status, outputs = named_outputs(http, run)
        uid = status.uid
        if status.phase not in ENDED_PHASES and not partial:
            raise CliError(
                f"{uid} has not ended: {status.phase}",
                ExitCode.NOT_FOUND,
                remedy=f"`fmesh watch {uid}` follows it",
            )
        written: dict[str, Path] = {}
        if files and download is not None:
            name = data_set(outputs)
            rows_of = Rows(http, f"/v1/runs/{uid}/outputs/{name}", count=None, partial=partial)
            count = write_row_files(rows_of, download, files, column)
            written = {name: download}
            terminal.note(f"{formatting.count(count, 'file')} -> {download}")
        elif download is not None:
            written = download_outputs(
                http, uid, outputs, download, format_ or DOWNLOADED_FORMATS[0], partial=partial
            )
        rows = read_heads(http, uid, outputs, head, columns) if head else {}
    if as_json:
        paths = {name: str(path) for name, path in written.items()}
        answer = {"uid": uid, "outputs": outputs, "files": paths}
        terminal.answer({**answer, "rows": rows} if head else answer)
    elif head and format_ in ("json", "csv"):
        _write_rows(terminal, rows[data_set(outputs)], format_)
    else:
        for name, output in outputs.items():
            where = f" -> {written[name]}" if name in written else ""
            terminal.text(f"{name}: {describe_output(output, status)}{where}")
            if output and output.get("reference") and not where:
                terminal.text(f"  {output['reference']}")
            show_rows(terminal, rows.get(name, ()), columns=columns)
        if not outputs:
            terminal.note("the workflow declares no outputs")
    if download is not None and not partial:
        _require_all(terminal, status, outputs)


def _require_all(
    terminal: Terminal, status: RunStatus, outputs: Mapping[str, dict[str, Any] | None]
) -> None:
    """Exits with the run's code where it has not succeeded and an output is missing."""
    missing = [name for name, output in outputs.items() if output is None]
    code = worst([status])
    if code and missing:
        terminal.note(
            f"run {status.uid} has ended as {status.phase} without {', '.join(missing)}: "
            f"`fmesh status {status.uid}` shows why, and --partial downloads what is published"
        )
        raise typer.Exit(code)


def _refuse_format(format_: str, download: Path | None, head: int) -> None:
    """Refuses a format that is unknown, or that has no effect here.

    Raises:
        CliError: names the formats and what each needs.
    """
    usable = DOWNLOADED_FORMATS if download is not None else SHOWN_FORMATS if head else ()
    if not format_ or format_ in usable:
        return
    needed = ["--download"] if format_ in DOWNLOADED_FORMATS else []
    if format_ in SHOWN_FORMATS:
        needed.append("--head" if needed else "--head, without --download")
    problem = f"needs {' or '.join(needed)}" if needed else "is not a format"
    raise CliError(
        f"{format_!r} {problem}",
        ExitCode.USAGE,
        where="--format",
        remedy=f"the formats are {FORMATS_TEXT}",
    )


def _refuse_options(
    download: Path | None,
    *,
    partial: bool,
    files: str,
    column: str,
    head: int,
    columns: Sequence[str],
) -> None:
    """Refuses options that have no effect together.

    Raises:
        CliError: names the option and what it needs.
    """
    for option, given in (("--partial", partial), ("--files", files)):
        if given and download is None:
            raise CliError(
                f"{option} has no effect without --download",
                ExitCode.USAGE,
                where=option,
                remedy="name a folder: --download DIR",
            )
    if columns and not head:
        raise CliError(
            "--columns has no effect without --head",
            ExitCode.USAGE,
            where="--columns",
            remedy="name how many rows to show: --head N",
        )
    if bool(files) != bool(column):
        raise CliError(
            "--files and --column need each other",
            ExitCode.USAGE,
            where="--files" if files else "--column",
            remedy="for example --files '{{ id }}.md' --column text",
        )


def data_set(outputs: Mapping[str, dict[str, Any] | None]) -> str:
    """Returns the name of the one data set among outputs.

    Raises:
        CliError: there is none, or there are several.
    """
    names = [n for n, o in outputs.items() if o and o.get("kind") == "dataset"]
    if len(names) != 1:
        raise CliError(
            f"{formatting.count(len(names), 'data set')} among the outputs: one is needed",
            ExitCode.USAGE,
            remedy=f"name it as RUN/OUTPUT: {', '.join(names or outputs) or 'there are none'}",
        )
    return names[0]


def _write_rows(terminal: Terminal, rows: Sequence[Mapping[str, Any]], format_: str) -> None:
    """Writes rows alone to standard output, as a JSON array or as CSV with a heading."""
    if format_ == "json":
        terminal.answer(list(rows))
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([plain(row.get(name)) for name in names] for row in rows)


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


def named_outputs(http: ApiClient, text: str) -> tuple[RunStatus, dict[str, dict[str, Any] | None]]:
    """Returns the run that the user named, and its outputs or the one that is named as well."""
    uid, name = find_run_and_output(http, text)
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
