"""Commands that look at workflows before they run."""

from typing import Annotated

import typer

from flowmesh_cli.failing import guarded
from flowmesh_cli.options import JsonOption


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command("engines")(guarded(engines))


def engines(
    name: Annotated[str, typer.Argument(help="Show this one's ports and parameters.")] = "",
    json: JsonOption = False,
) -> None:
    """List the engines that steps can use."""
    from flowmesh_cli.engines import show_engines  # noqa: PLC0415

    show_engines(name, as_json=json)
