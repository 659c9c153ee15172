"""Declares ``keys``."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.commands.fabric import PANEL
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption

LoseResults = Annotated[
    bool,
    typer.Option(
        "--lose-results", help="Give up the results and runs that are sealed with the key."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    keys = typer.Typer(no_args_is_help=True, help="List, rotate or retire the master keys.")
    keys.command("list")(guarded(placed(list_keys)))
    keys.command("rotate")(guarded(placed(rotate)))
    keys.command("reseal")(guarded(placed(reseal)))
    keys.command("retire")(guarded(placed(retire)))
    keys.command("adopt")(guarded(placed(adopt)))
    app.add_typer(keys, name="keys", rich_help_panel=PANEL)


def list_keys(place: Target = HERE, json: JsonOption = False) -> None:
    """List the master keys and how many records each seals."""
    from flowmesh_cli.verbs.keys import show_keys  # noqa: PLC0415

    show_keys(place=place, as_json=json)


def rotate(
    file: Annotated[
        Path | None, typer.Option("--file", help="Change this key ring file instead.")
    ] = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Add a master key, which seals and signs from the next start on."""
    from flowmesh_cli.verbs.keys import rotate_keys  # noqa: PLC0415

    rotate_keys(file, place=place, as_json=json)


def reseal(place: Target = HERE, json: JsonOption = False) -> None:
    """Seal all records with the newest master key."""
    from flowmesh_cli.verbs.keys import reseal_records  # noqa: PLC0415

    reseal_records(place=place, as_json=json)


def retire(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")],
    lose_results: LoseResults = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Remove a master key.

    References that are signed with it become invalid.
    """
    from flowmesh_cli.verbs.keys import retire_key  # noqa: PLC0415

    retire_key(key_id, lose_results=lose_results, place=place, as_json=json)


def adopt(
    lose_results: LoseResults = False, place: Target = HERE, json: JsonOption = False
) -> None:
    """Continue without a master key that is lost.

    The results and runs that it sealed are lost.
    """
    from flowmesh_cli.verbs.keys import adopt_keys  # noqa: PLC0415

    adopt_keys(lose_results=lose_results, place=place, as_json=json)
