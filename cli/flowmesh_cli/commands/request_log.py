"""Declares ``request-log``."""

from typing import Annotated

import typer

from flowmesh_cli.commands.fabric import PANEL
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    group = typer.Typer(no_args_is_help=True, help="Show or verify the log of requests.")
    group.command("show")(guarded(placed(show)))
    group.command("verify")(guarded(placed(verify)))
    app.add_typer(group, name="request-log", rich_help_panel=PANEL)


def show(
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Earliest time, or an age such as 1h or 7d."),
    ] = "",
    user: Annotated[str, typer.Option("--user", help="Requests of this user only.")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Requests about this namespace only.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new entries until Ctrl-C.")
    ] = False,
    place: Target = HERE,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Show who asked for what, oldest first."""
    from flowmesh_cli.verbs.request_log import LogFilter, show_log  # noqa: PLC0415

    wanted = LogFilter(since, user, namespace)
    show_log(wanted, follow=follow, place=place, as_json=json)


def verify(
    store: Annotated[
        str,
        typer.Option(
            "--store", metavar="URL", help="Check this bucket or directory, without a fabric."
        ),
    ] = "",
    public_key: Annotated[
        list[str] | None,
        typer.Option(
            "--public-key", metavar="KEY", help="Trust this key of `fmesh keys list`. Repeatable."
        ),
    ] = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Check that no entry was changed or removed.

    Exit with 1 and the name of the first segment that is not valid.
    """
    from flowmesh_cli.verbs.request_log import verify_log, verify_store  # noqa: PLC0415

    if store or public_key:
        verify_store(store, public_key or (), as_json=json)
    else:
        verify_log(place=place, as_json=json)
