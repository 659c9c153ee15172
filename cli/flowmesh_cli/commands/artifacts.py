"""Declares ``lineage``, ``audit``, ``revoke``, ``export`` and ``bill``."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.commands.names import RunArgument
from flowmesh_cli.commands.runs import PriceOption, WorkersOption
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption

OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write to this file, not to standard output."),
]
SinceOption = Annotated[
    str,
    typer.Option("--since", metavar="DAY", help="First day, in UTC, or an age such as 7d."),
]
UntilOption = Annotated[
    str, typer.Option("--until", metavar="DAY", help="End before this day, in UTC.")
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    panel = "Explain"
    more = {"allow_extra_args": True}  # so that the error says how to name an output of a run
    app.command("lineage", rich_help_panel=panel, context_settings=more)(guarded(placed(lineage)))
    app.command("audit", rich_help_panel=panel)(guarded(placed(audit)))
    app.command("revoke", rich_help_panel=panel)(guarded(placed(revoke)))
    app.command("bill", rich_help_panel=panel)(guarded(placed(bill)))
    export = typer.Typer(no_args_is_help=True, help="Export runs for other tools.")
    export.command("openlineage")(guarded(placed(openlineage)))
    export.command("focus")(guarded(placed(focus)))
    app.add_typer(export, name="export", rich_help_panel=panel)


def lineage(
    invocation: typer.Context,
    artifact: Annotated[
        str,
        typer.Argument(help="Reference, digest or its beginning, RUN/OUTPUT, or RUN/STEP.PORT."),
    ],
    down: Annotated[
        bool,
        typer.Option("--down/--up", help="Show what was made from it, or what it was made from."),
    ] = False,
    depth: Annotated[int, typer.Option(min=1, help="Number of steps to follow.")] = 100,
    rows: Annotated[
        bool, typer.Option("--rows", help="Show which rows its rows came from.")
    ] = False,
    all_runs: Annotated[
        bool,
        typer.Option("--all-runs", help="Also show other runs that made the same bytes."),
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show what an artifact was made from, or was used for."""
    from flowmesh_cli.verbs.lineage import (  # noqa: PLC0415
        require_one_name,
        show_lineage,
        show_rows,
    )

    require_one_name(artifact, invocation.args)
    if rows:
        show_rows(artifact, place=place, as_json=json)
    else:
        show_lineage(artifact, down=down, depth=depth, all_runs=all_runs, place=place, as_json=json)


def revoke(
    artifact: Annotated[
        str, typer.Argument(help="Digest of a data set or another artifact, reference, RUN/OUTPUT.")
    ],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Revoke it in this namespace.")
    ] = "",
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces", "-A", help="Revoke it in all namespaces, as an administrator."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write the signed report to this file."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Revoke an artifact: delete it and all that was made from it.

    It is revoked in one namespace. Administrators may revoke it in all.
    """
    from flowmesh_cli.verbs.revoke import revoke_artifact  # noqa: PLC0415

    revoke_artifact(
        artifact,
        namespace=namespace,
        all_namespaces=all_namespaces,
        dry_run=dry_run,
        report=report,
        yes=yes,
        place=place,
        as_json=json,
    )


def audit(
    *,
    run: RunArgument = "",
    sample: Annotated[
        str,
        typer.Option(
            "--sample", metavar="SHARE", help="Share of the actions, at least one action."
        ),
    ] = "5%",
    seed: Annotated[int, typer.Option("--seed", help="Seed that draws the sample.")] = 0,
    list_: Annotated[
        bool, typer.Option("--list", help="List the audits and what is in quarantine.")
    ] = False,
    release: Annotated[
        str,
        typer.Option(
            "--release", metavar="CLASS", help="End the quarantine of this signature class."
        ),
    ] = "",
    workers: WorkersOption = 1,
    price_usd_per_hour: PriceOption = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Re-execute results of a finished run and compare them.

    Quarantine results that differ although their engine promises the same, so that later runs do
    not reuse them. Start a fabric where none is running. Exit with 1 where something differs.
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


def focus(
    run: Annotated[
        str,
        typer.Argument(help="Uid, beginning of a uid, or name of a run.", show_default="all runs"),
    ] = "",
    since: SinceOption = "",
    until: UntilOption = "",
    format_: Annotated[
        str, typer.Option("--format", help="Format of the rows: csv or parquet.")
    ] = "csv",
    out: OutOption = None,
    account: Annotated[
        str,
        typer.Option("--billing-account", metavar="ID", help="BillingAccountId of the rows."),
    ] = "flowmesh",
    place: Target = HERE,
    json: Annotated[
        bool, typer.Option("--json", help="Print errors as JSON. Rows are CSV or Parquet.")
    ] = False,
) -> None:
    """Write what runs paid in the columns of FOCUS 1.4."""
    from flowmesh_cli.verbs.bill import Period, export_focus  # noqa: PLC0415

    del json  # read by ``guarded``
    period = Period(run, since, until)
    export_focus(period, format_=format_, out=out, account=account, place=place)


def bill(
    since: SinceOption = "",
    until: UntilOption = "",
    by: Annotated[
        str, typer.Option("--by", help="Sum by day (of each namespace), namespace or run.")
    ] = "day",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show what namespaces paid, by day (UTC), in total, or by run."""
    from flowmesh_cli.verbs.bill import Period, show_bill  # noqa: PLC0415

    show_bill(Period(since=since, until=until), by=by, place=place, as_json=json)


def openlineage(
    run: RunArgument = "",
    out: OutOption = None,
    place: Target = HERE,
    json: Annotated[
        bool, typer.Option("--json", help="Print errors as JSON. Events are JSON in any case.")
    ] = False,
) -> None:
    """Write a run as OpenLineage events, one JSON document a line."""
    from flowmesh_cli.verbs.lineage import export_openlineage  # noqa: PLC0415

    del json  # read by ``guarded``

    export_openlineage(run, out=out, place=place)
