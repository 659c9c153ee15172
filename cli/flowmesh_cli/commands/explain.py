"""Declares ``why``, ``explain``, ``receipt``, ``outputs``, ``sql``, ``plot``, ``diff``."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.commands.names import (
    OutputArgument,
    RunArgument,
    RunOption,
    RunOrStepArgument,
    StepArgument,
    run_and_step,
)
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption
from flowmesh_cli.verbs.output_formats import FORMATS_TEXT


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for name, command in (
        ("why", why),
        ("explain", explain),
        ("receipt", receipt),
        ("outputs", outputs),
        ("sql", sql),
        ("plot", plot),
        ("diff", diff),
    ):
        app.command(name, rich_help_panel="Explain")(guarded(placed(command)))


def why(
    named: RunOrStepArgument,
    step: StepArgument = "",
    run: RunOption = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show why a step is waiting, and what it ran or reused.

    With the id of a request to `fmesh serve` (the header X-Flowmesh-Request of its response), show
    where the request's time went.
    """
    from flowmesh_cli.verbs.why import show_why  # noqa: PLC0415
    from flowmesh_cli.verbs.why_request import is_request, show_request  # noqa: PLC0415

    if is_request(named) and not step and not run:
        show_request(named, place=place, as_json=json)
        return
    run, step = run_and_step(named, step, run)
    show_why(step, run=run, place=place, as_json=json)


def explain(
    named: RunOrStepArgument,
    step: StepArgument = "",
    run: RunOption = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show the candidate workers of a step and their utility."""
    from flowmesh_cli.verbs.why import show_placement  # noqa: PLC0415

    run, step = run_and_step(named, step, run)
    show_placement(step, run=run, place=place, as_json=json)


def receipt(
    run: RunArgument = "",
    all_: Annotated[
        bool, typer.Option("--all", help="Show every run and the fabric's account.")
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show what a run paid, what it saved, and with whom it shared."""
    from flowmesh_cli.verbs.receipts import show_receipt, show_receipts  # noqa: PLC0415

    if all_:
        show_receipts(place=place, as_json=json)
    else:
        show_receipt(run, place=place, as_json=json)


def outputs(
    run: OutputArgument = "",
    head: Annotated[
        int,
        typer.Option("--head", min=0, metavar="N", help="Show the first N rows of each data set."),
    ] = 0,
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B", help="Show these columns, with --head.")
    ] = "",
    download: Annotated[
        Path | None,
        typer.Option("--download", metavar="DIR", help="Write the outputs to this folder."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", help=f"Format of data sets: {FORMATS_TEXT}."),
    ] = "",
    files: Annotated[
        str,
        typer.Option(
            "--files",
            metavar="NAME",
            help="Download a file for each row, named by this template, such as '{{ id }}.md'.",
        ),
    ] = "",
    column: Annotated[
        str, typer.Option("--column", help="Column with the content of these files.")
    ] = "",
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", help="Download the outputs that are published, even if others are missing."
        ),
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show the outputs of a run, or download them."""
    from flowmesh_cli.verbs.outputs import show_outputs  # noqa: PLC0415

    show_outputs(
        run,
        download=download,
        format_=format_,
        partial=partial,
        files=files,
        column=column,
        head=head,
        columns=[name.strip() for name in columns.split(",") if name.strip()],
        place=place,
        as_json=json,
    )


def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="A SELECT statement. Each data set among the outputs is a table named after it."
        ),
    ],
    run: RunOption = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows to show.")] = 40,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Query the outputs of a run with SQL, on this machine."""
    from flowmesh_cli.verbs.sql import query_outputs  # noqa: PLC0415

    query_outputs(query, run=run, limit=limit, place=place, as_json=json)


def plot(
    run: OutputArgument = "",
    *,
    x: Annotated[str, typer.Option("--x", metavar="COLUMN", help="Horizontal axis.")],
    y: Annotated[str, typer.Option("--y", metavar="COLUMN", help="Vertical axis.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Draw to this file: .png, .svg or .pdf."),
    ] = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Draw two columns of an output, as text or into a file."""
    from flowmesh_cli.verbs.plot import plot_output  # noqa: PLC0415

    plot_output(run, x=x, y=y, out=out, place=place, as_json=json)


def diff(
    first: RunArgument,
    second: RunArgument,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show how two runs differ: steps, outputs, metrics, cost."""
    from flowmesh_cli.verbs.diff import show_diff  # noqa: PLC0415

    show_diff(first, second, place=place, as_json=json)
