"""Declares ``workers``, ``quota``, ``cache`` and ``policies``."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import CliError, guarded
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.options import JsonOption

PANEL = "Fabric"


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command("workers", rich_help_panel=PANEL)(guarded(placed(workers)))
    app.command("quota", rich_help_panel=PANEL)(guarded(placed(quota)))
    cache = typer.Typer(no_args_is_help=True, help="Show, collect or purge cached results.")
    cache.command("stats")(guarded(placed(stats)))
    cache.command("gc")(guarded(placed(collect)))
    cache.command("purge")(guarded(placed(purge)))
    app.add_typer(cache, name="cache", rich_help_panel=PANEL)
    policies = typer.Typer(
        no_args_is_help=True,
        invoke_without_command=True,
        help="List, set or delete cache policies.",
    )
    policies.callback()(guarded(placed(own_policies)))
    policies.command("list")(guarded(placed(list_policies)))
    policies.command("set")(guarded(placed(set_policies)))
    policies.command("delete")(guarded(placed(drop_policy)))
    app.add_typer(policies, name="policies", rich_help_panel=PANEL)


def workers(place: Target = HERE, json: JsonOption = False) -> None:
    """List the workers, their engines and their cost."""
    from flowmesh_cli.verbs.fabric import show_workers  # noqa: PLC0415

    show_workers(place=place, as_json=json)


def quota(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Show the quota of this namespace.")
    ] = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show the quota of a namespace, and what is left of it."""
    from flowmesh_cli.verbs.quota import show_quota  # noqa: PLC0415

    show_quota(namespace=namespace, place=place, as_json=json)


def stats(place: Target = HERE, json: JsonOption = False) -> None:
    """Show how much is cached, and what it saved."""
    from flowmesh_cli.verbs.cache import show_stats  # noqa: PLC0415

    show_stats(place=place, as_json=json)


def collect(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Delete expired results and unreferenced blobs."""
    from flowmesh_cli.verbs.cache import collect_garbage  # noqa: PLC0415

    collect_garbage(dry_run=dry_run, place=place, as_json=json)


def purge(
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Purge results of this namespace only.")
    ] = "",
    engine: Annotated[
        str, typer.Option("--engine", help="Purge results of this engine only.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Purge cached results, so that they are computed again."""
    from flowmesh_cli.verbs.cache import purge_results  # noqa: PLC0415

    purge_results(namespace=namespace, engine=engine, yes=yes, place=place, as_json=json)


def own_policies(
    invocation: typer.Context,
    mine: Annotated[
        bool, typer.Option("--mine", help="Show with whom a namespace shares results.")
    ] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace that --mine is for.")
    ] = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """List, set or delete cache policies."""
    if invocation.invoked_subcommand is None and mine:
        from flowmesh_cli.verbs.fabric import show_own_policies  # noqa: PLC0415

        show_own_policies(namespace=namespace, place=place, as_json=json)
        return
    given = [name for name in invocation.params if _is_given(invocation, name)]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CliError(
            f"{options} of `policies` has no effect here",
            ExitCode.USAGE,
            remedy="write options behind the subcommand; --mine stands without one",
        )


def _is_given(invocation: typer.Context, name: str) -> bool:
    source = invocation.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def list_policies(place: Target = HERE, json: JsonOption = False) -> None:
    """List the cache policies."""
    from flowmesh_cli.verbs.fabric import show_policies  # noqa: PLC0415

    show_policies(place=place, as_json=json)


def set_policies(
    files: Annotated[list[Path], typer.Argument(help="Files with FlowMeshCachePolicy objects.")],
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Set the cache policies in files.

    Runs that have started keep the old rules.
    """
    from flowmesh_cli.verbs.fabric import put_policies  # noqa: PLC0415

    put_policies(files, place=place, as_json=json)


def drop_policy(
    name: Annotated[str, typer.Argument(help="Name of the policy.")],
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Delete a cache policy.

    Runs that have started keep the old rules.
    """
    from flowmesh_cli.verbs.fabric import delete_policy  # noqa: PLC0415

    delete_policy(name, place=place, as_json=json)
