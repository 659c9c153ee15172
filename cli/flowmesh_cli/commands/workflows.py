"""Declares ``validate``, ``plan``, ``graph`` and ``engines``."""

from typing import Annotated

import typer

from flowmesh_cli.commands.names import EngineArgument
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import (
    FilesArgument,
    InputOption,
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
    input_: InputOption = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Also check what a cluster would refuse.")
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Check workflow and policy files without running them.

    Report every problem at once, with file, line and column. Refuse valid workflows that no worker
    of this installation can run, except with --kubernetes or --cluster.
    """
    from flowmesh_cli.verbs.validate import validate_files  # noqa: PLC0415

    selection = WorkflowSelection(files, namespace, set_, input_)
    validate_files(selection, place=place, as_json=json, kubernetes=kubernetes)


def plan(
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    input_: InputOption = None,
    resolve: Annotated[
        bool,
        typer.Option(
            "--resolve",
            help="First resolve inputs at hubs and buckets, and show the bytes to fetch.",
        ),
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Predict hits, cost, time and energy of workflows or batches."""
    from flowmesh_cli.verbs.plan import plan_batches, plan_files  # noqa: PLC0415

    selection = WorkflowSelection(files, namespace, set_, input_)
    if any(file.suffix == ".jsonl" for file in files):
        plan_batches(selection, resolves=resolve, place=place, as_json=json)
    else:
        plan_files(selection, resolves=resolve, place=place, as_json=json)


def graph(
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    input_: InputOption = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid diagram.")] = False,
    json: JsonOption = False,
) -> None:
    """Draw the steps of workflows and their dependencies."""
    from flowmesh_cli.verbs.validate import draw_files  # noqa: PLC0415

    draw_files(WorkflowSelection(files, namespace, set_, input_), mermaid=mermaid, as_json=json)


def engines(
    name: EngineArgument = "",
    all_: Annotated[bool, typer.Option("--all", help="List the engines for tests too.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """List the engines that steps can use, or show one."""
    from flowmesh_cli.verbs.engines import show_engines  # noqa: PLC0415

    show_engines(name, every=all_, place=place, as_json=json)
