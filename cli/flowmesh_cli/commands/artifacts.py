"""Commands that follow artifacts and check results: lineage, audit, export."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.commands.runs import PriceOption, WorkersOption
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption, RunArgument


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    panel = "Explain"
    app.command("lineage", rich_help_panel=panel)(guarded(placed(lineage)))
    app.command("audit", rich_help_panel=panel)(guarded(placed(audit)))
    export = typer.Typer(no_args_is_help=True, help="Write what other systems read.")
    export.command("openlineage")(guarded(placed(openlineage)))
    app.add_typer(export, name="export", rich_help_panel=panel)


def lineage(
    artifact: Annotated[
        str,
        typer.Argument(
            help="A reference, a digest or its beginning, or RUN/OUTPUT or RUN/STEP.PORT."
        ),
    ],
    down: Annotated[
        bool, typer.Option("--down/--up", help="What was made from it, or what it was made from.")
    ] = False,
    depth: Annotated[int, typer.Option(min=1, help="How many steps to follow.")] = 100,
    rows: Annotated[
        bool, typer.Option("--rows", help="Which rows of which data set its rows came from.")
    ] = False,
    all_runs: Annotated[
        bool,
        typer.Option("--all-runs", help="Also how other runs made equal bytes, each in full."),
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Follow an artifact to what it was made from, or to what was made from it."""
    from flowmesh_cli.verbs.lineage import show_lineage, show_rows  # noqa: PLC0415

    if rows:
        show_rows(artifact, place=place, as_json=json)
    else:
        show_lineage(artifact, down=down, depth=depth, all_runs=all_runs, place=place, as_json=json)


def audit(
    *,
    run: RunArgument = "",
    sample: Annotated[
        str, typer.Option("--sample", metavar="SHARE", help="Of its actions; at least one.")
    ] = "5%",
    seed: Annotated[int, typer.Option("--seed", help="Draws the sample.")] = 0,
    list_: Annotated[
        bool, typer.Option("--list", help="Show all audits and what is in quarantine.")
    ] = False,
    release: Annotated[
        str, typer.Option("--release", metavar="CLASS", help="End a quarantine.")
    ] = "",
    workers: WorkersOption = 1,
    price_usd_per_hour: PriceOption = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Make results of an ended run again, alone, and compare them with what was published.

    What does not repeat though its engine says so is quarantined: later runs do not find it, and
    make it again. Exit code 1 where something differs. Starts a fabric where none is running.
    """
    from flowmesh_cli.verbs import audit  # noqa: PLC0415

    if list_:
        audit.list_audits(place=place, as_json=json)
    elif release:
        audit.release_class(release, place=place, as_json=json)
    else:
        audit.audit_run(
            run,
            audit.read_sample(sample, seed),
            workers=workers,
            price_usd_per_hour=price_usd_per_hour,
            place=place,
            as_json=json,
        )


def openlineage(
    run: RunArgument = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write here, not to the screen.")
    ] = None,
    place: Target = HERE,
    json: Annotated[
        bool, typer.Option("--json", help="Answer errors as JSON, too; events always are.")
    ] = False,
) -> None:
    """Write a run as OpenLineage events, one JSON document a line."""
    from flowmesh_cli.verbs.lineage import export_openlineage  # noqa: PLC0415

    del json  # read by ``guarded``

    export_openlineage(run, out=out, place=place)
