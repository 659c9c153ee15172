"""Declares ``doctor``."""

from typing import Annotated

import typer

from flowmesh_cli.commands.fabric import PANEL
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption, StateDirOption


def add_to(app: typer.Typer) -> None:
    """Registers the command."""
    app.command("doctor", rich_help_panel=PANEL)(guarded(doctor))


def doctor(
    port: Annotated[
        list[int] | None,
        typer.Option("--port", help="Check a port for `up` or `serve`. Repeatable."),
    ] = None,
    state_dir: StateDirOption = None,
    json: JsonOption = False,
) -> None:
    """Check this machine and installation, and show remedies."""
    from flowmesh_cli.verbs.doctor import examine  # noqa: PLC0415

    examine(ports=port or (), state_dir=state_dir, as_json=json)
