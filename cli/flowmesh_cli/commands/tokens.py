"""Declares ``token``."""

from typing import Annotated

import typer

from flowmesh_cli.commands.serving import PANEL
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace of the service.",
        show_default="where it is; on a cluster the context's",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    tokens = typer.Typer(
        no_args_is_help=True, help="Create, list or revoke tokens that may call one service."
    )
    tokens.command("create")(guarded(placed(create)))
    tokens.command("list")(guarded(placed(list_tokens)))
    tokens.command("revoke")(guarded(placed(revoke)))
    app.add_typer(tokens, name="token", rich_help_panel=PANEL)


def create(
    service: Service,
    *,
    expires: Annotated[
        str, typer.Option("--expires", help="Time until the token expires, e.g. 30d, or never.")
    ] = "30d",
    namespace: NamespaceOption = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Create a token for one service, and print it this once."""
    from flowmesh_cli.verbs.tokens import create_token  # noqa: PLC0415

    create_token(service, expires=expires, namespace=namespace, place=place, as_json=json)


def list_tokens(
    service: Service,
    *,
    namespace: NamespaceOption = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """List the tokens of a service."""
    from flowmesh_cli.verbs.tokens import show_tokens  # noqa: PLC0415

    show_tokens(service, namespace=namespace, place=place, as_json=json)


def revoke(
    service: Service,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")],
    *,
    namespace: NamespaceOption = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Revoke a token of a service."""
    from flowmesh_cli.verbs.tokens import revoke_token  # noqa: PLC0415

    revoke_token(service, token_id, namespace=namespace, place=place, as_json=json)
