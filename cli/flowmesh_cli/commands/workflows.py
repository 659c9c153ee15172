"""Commands that look at workflows before they run."""

from typing import Annotated

import typer

from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import (
    FilesArgument,
    JsonOption,
    NamespaceOption,
    SetOption,
)
from flowmesh_cli.workflows.selection import WorkflowSelection


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    for name, command in (
        ("validate", validate),
        ("plan", plan),
        ("graph", graph),
        ("engines", engines),
    ):
        app.command(name, rich_help_panel="Plan")(guarded(placed(command)))


def validate(
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Also what a cluster refuses of `kubectl apply`.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check workflows and policies; every problem at once, with line and column."""
    from flowmesh_cli.verbs.validate import validate_files  # noqa: PLC0415

    validate_files(WorkflowSelection(files, namespace, set_), as_json=json, kubernetes=kubernetes)


def plan(
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Predict: steps, hits, batches, dollars, time, joules, and how sure that is."""
    from flowmesh_cli.verbs.plan import plan_files  # noqa: PLC0415

    plan_files(WorkflowSelection(files, namespace, set_), place=place, as_json=json)


def graph(
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid diagram.")] = False,
    json: JsonOption = False,
) -> None:
    """Draw the steps of workflows and what they need of each other."""
    from flowmesh_cli.verbs.validate import draw_files  # noqa: PLC0415

    draw_files(WorkflowSelection(files, namespace, set_), mermaid=mermaid, as_json=json)


def engines(
    name: Annotated[str, typer.Argument(help="Show this one's ports and parameters.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="List the engines for tests, too.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """List the engines that steps can use: of a cluster, or those that are installed here."""
    from flowmesh_cli.verbs.engines import show_engines  # noqa: PLC0415

    show_engines(name, every=all_, place=place, as_json=json)
