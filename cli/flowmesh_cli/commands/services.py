"""Declares ``services``."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.commands.serving import PANEL
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption

ServiceArgument = Annotated[str, typer.Argument(help="Name of a service.", metavar="SERVICE")]
ServiceNamespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace of the services.",
        show_default="all; on a cluster the context's",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    services = typer.Typer(no_args_is_help=True, help="Show services and their replicas.")
    verbs = (
        ("list", list_services),
        ("show", show),
        ("top", top),
        ("why", why),
        ("capacity", capacity),
    )
    for name, command in verbs:
        services.command(name)(guarded(placed(command)))
    services.command("manifest")(guarded(placed(manifest)))
    app.add_typer(services, name="services", rich_help_panel=PANEL)


def list_services(
    *, namespace: ServiceNamespace = "", place: Target = HERE, json: JsonOption = False
) -> None:
    """List the services."""
    from flowmesh_cli.verbs.services import list_services as run  # noqa: PLC0415

    run(namespace=namespace, place=place, as_json=json)


def show(
    name: ServiceArgument,
    *,
    namespace: ServiceNamespace = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show the state of a service."""
    from flowmesh_cli.verbs.services import show_service  # noqa: PLC0415

    show_service(name, namespace=namespace, place=place, as_json=json)


def top(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Print the table once, as into a pipe.")
    ] = False,
    namespace: ServiceNamespace = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Watch the load and the cost of services until Ctrl-C."""
    from flowmesh_cli.verbs.service_top import show_top  # noqa: PLC0415

    show_top(once=once, namespace=namespace, place=place, as_json=json)


def why(
    name: ServiceArgument,
    *,
    namespace: ServiceNamespace = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show why each replica of a service is where it is, or missing."""
    from flowmesh_cli.verbs.services import explain_service  # noqa: PLC0415

    explain_service(name, namespace=namespace, place=place, as_json=json)


def capacity(
    name: ServiceArgument,
    *,
    namespace: ServiceNamespace = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Predict latency and late replies of a service by load."""
    from flowmesh_cli.verbs.service_capacity import show_capacity  # noqa: PLC0415

    show_capacity(name, namespace=namespace, place=place, as_json=json)


def manifest(
    file: Annotated[Path, typer.Argument(help="File of a service.", metavar="FILE")],
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace, in place of the file's.")
    ] = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Print a file's FlowMeshService with its code, for kubectl apply.

    The output is JSON in any case. With --cluster, upload the inputs that are local files.
    """
    del json
    from flowmesh_cli.verbs.services import print_manifest  # noqa: PLC0415

    print_manifest(file, namespace=namespace, place=place)
