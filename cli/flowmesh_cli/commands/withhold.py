"""Declares ``withhold`` and ``verify``."""

from typing import Annotated

import typer

from flowmesh_cli.commands.fabric import PANEL
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command("withhold", rich_help_panel=PANEL)(guarded(placed(withhold)))
    app.command("verify", rich_help_panel="Explain")(guarded(placed(verify)))


def withhold(
    worker: Annotated[str, typer.Option("--worker", help="Results of this worker.")] = "",
    pool: Annotated[str, typer.Option("--pool", help="Results of this pool's workers.")] = "",
    attempt: Annotated[str, typer.Option("--attempt", help="The result of this attempt.")] = "",
    library: Annotated[
        str,
        typer.Option("--library", metavar="NAME[=VERSION]", help="Results made with this library."),
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Results made since this time, or an age (1h, 7d)."
        ),
    ] = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the results and runs concerned, and change nothing."),
    ] = False,
    rerun: Annotated[
        bool,
        typer.Option("--rerun", help="Start the affected runs again. The fabric pays for them."),
    ] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete the results.")] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Let look-ups find withheld results again.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List what is withheld.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Keep results from being reused, by where they were made.

    Conditions are combined. They hold for results that exist now, in all namespaces.
    """
    from flowmesh_cli.verbs import withhold as verb  # noqa: PLC0415

    if list_:
        verb.show_withheld(place=place, as_json=json)
        return
    results = verb.selector(worker, pool, attempt, library, since)
    if release:
        verb.release_results(results, place=place, as_json=json)
        return
    wanted = verb.Withhold(results, dry_run=dry_run, rerun=rerun, purge=purge)
    verb.withhold_results(wanted, yes=yes, place=place, as_json=json)


def verify(
    output: Annotated[
        str, typer.Argument(metavar="RUN[/OUTPUT]", help="An output, or a run with all of them.")
    ],
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Check stored outputs of a run and their whole lineage.

    Exit with 1 at the first blob, identity or record that is not valid.
    """
    from flowmesh_cli.verbs.verify import verify_outputs  # noqa: PLC0415

    verify_outputs(output, place=place, as_json=json)
