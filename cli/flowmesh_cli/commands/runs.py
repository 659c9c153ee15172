"""Declares ``run``, ``up``, ``submit`` and the commands on runs."""

from typing import Annotated

import typer

from flowmesh_cli.commands.names import RunArgument, RunsArgument, StepArgument, StepOption
from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import (
    FilesArgument,
    InputOption,
    JsonOption,
    NamespaceOption,
    SetOption,
    StateDirOption,
)
from flowmesh_cli.workflows.selection import WorkflowSelection

WorkersOption = Annotated[int, typer.Option("--workers", min=0, help="Number of local workers.")]
PriceOption = Annotated[
    str | None,
    typer.Option(
        "--price-usd-per-hour",
        help="Price of one local worker, in place of an estimate by its device.",
        metavar="USD",
    ),
]

STORE_PANEL = "Store"

WeightOption = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="TENANT=WEIGHT",
        help="Weight of a tenant in the fair share, 1 by default. Repeatable.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    panel = "Run"
    for name, command in (
        ("run", run),
        ("up", up),
        ("submit", submit),
        ("status", status),
        ("list", list_runs),
        ("watch", watch),
        ("cancel", cancel),
        ("delete", delete),
        ("amend", amend),
        ("repin", repin),
        ("resume", resume),
        ("logs", logs),
    ):
        app.command(name, rich_help_panel=panel)(guarded(placed(command)))


def run(
    *,
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    input_: InputOption = None,
    workers: WorkersOption = 1,
    price_usd_per_hour: PriceOption = None,
    weight: WeightOption = None,
    no_policies: Annotated[
        bool,
        typer.Option("--no-policies", help="Remove all cache policies, so that nothing is shared."),
    ] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Run workflows until they end.

    Start a control process and local workers on the state folder, or join the fabric that serves
    it. Resume an unfinished run of the same spec and namespace. Ctrl-C cancels the runs, and a
    second Ctrl-C leaves at once.
    """
    from flowmesh_cli.verbs.run import run_files  # noqa: PLC0415

    run_files(
        WorkflowSelection(files, namespace, set_, input_),
        workers=workers,
        price_usd_per_hour=price_usd_per_hour,
        weights=weight,
        policies=not no_policies,
        place=place,
        as_json=json,
    )


def up(
    *,
    workers: WorkersOption = 1,
    price_usd_per_hour: PriceOption = None,
    weight: WeightOption = None,
    port: Annotated[
        int, typer.Option("--port", help="Port of the API on 127.0.0.1, or 0 for any.")
    ] = 0,
    state_dir: StateDirOption = None,
    collect_every: Annotated[
        str,
        typer.Option(
            "--collect-every",
            metavar="DURATION",
            help="Time between deletions of what nothing needs, or 0 for `fmesh cache gc` only.",
            rich_help_panel=STORE_PANEL,
        ),
    ] = "1h",
    collect_grace: Annotated[
        str,
        typer.Option(
            "--collect-grace",
            metavar="DURATION",
            help="Age below which nothing is deleted.",
            rich_help_panel=STORE_PANEL,
        ),
    ] = "24h",
    store_max: Annotated[
        str,
        typer.Option(
            "--store-max",
            metavar="SIZE",
            help="Most bytes in use, such as 200Gi. The least recently used results go first.",
            rich_help_panel=STORE_PANEL,
        ),
    ] = "",
    keep_results: Annotated[
        str,
        typer.Option(
            "--keep-results",
            metavar="DURATION",
            help="How long results are valid, where their cache policy has no ttl.",
            rich_help_panel=STORE_PANEL,
        ),
    ] = "30d",
    keep_runs: Annotated[
        str,
        typer.Option(
            "--keep-runs",
            metavar="DURATION",
            help="How long records of ended runs stay.",
            rich_help_panel=STORE_PANEL,
        ),
    ] = "90d",
    json: JsonOption = False,
) -> None:
    """Serve a fabric on this machine until Ctrl-C.

    Unfinished runs go on with the next `fmesh up` or `fmesh run`.
    """
    from flowmesh_cli.local.options import CollectionOptions  # noqa: PLC0415
    from flowmesh_cli.verbs.up import serve  # noqa: PLC0415

    serve(
        workers=workers,
        price_usd_per_hour=price_usd_per_hour,
        weights=weight,
        collection=CollectionOptions(
            collect_every, collect_grace, store_max, keep_results, keep_runs
        ),
        port=port,
        state_dir=state_dir,
        as_json=json,
    )


def submit(
    files: FilesArgument,
    namespace: NamespaceOption = None,
    set_: SetOption = None,
    input_: InputOption = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Submit workflows to a running fabric, and return."""
    from flowmesh_cli.verbs.run import submit_files  # noqa: PLC0415

    submit_files(WorkflowSelection(files, namespace, set_, input_), place=place, as_json=json)


def status(
    run: RunArgument = "",
    step: StepArgument = "",
    all_: Annotated[bool, typer.Option("--all", help="List every run, one a line.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Show a run and its steps, one step, or every run with --all."""
    from flowmesh_cli.verbs.manage_runs import show_status  # noqa: PLC0415

    show_status(run, step=step, every=all_, place=place, as_json=json)


def list_runs(place: Target = HERE, json: JsonOption = False) -> None:
    """List every run, one a line, as `status --all` does."""
    from flowmesh_cli.verbs.manage_runs import show_status  # noqa: PLC0415

    show_status("", every=True, place=place, as_json=json)


def watch(
    run: RunArgument = "",
    place: Target = HERE,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Follow a run until it ends.

    Ctrl-C stops following and leaves the run going.
    """
    from flowmesh_cli.verbs.run import watch_run  # noqa: PLC0415

    watch_run(run, place=place, as_json=json)


def cancel(
    run: RunArgument = "",
    reason: Annotated[str, typer.Option(help="Reason to show in the run's status.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Cancel a run.

    Published results stay. Without RUN, cancel the latest run. On a terminal, ask first.
    """
    from flowmesh_cli.verbs.manage_runs import cancel_run  # noqa: PLC0415

    cancel_run(run, reason=reason, yes=yes, place=place, as_json=json)


def delete(
    runs: RunsArgument = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Delete all runs of the namespace that ended longer ago than this, such as 30d.",
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Delete runs that have ended, with their logs and lineage.

    Results that others use stay, and bills still count what the runs paid. On a cluster, also
    delete their FlowMeshWorkflow objects.
    """
    from flowmesh_cli.verbs.delete import delete_runs  # noqa: PLC0415

    delete_runs(runs or (), older_than=older_than, yes=yes, place=place, as_json=json)


def amend(
    *,
    run: RunArgument = "",
    priority: Annotated[int | None, typer.Option(help="Priority. Higher goes first.")] = None,
    budget_usd: Annotated[
        str | None, typer.Option(help="The most that the run may cost, in dollars.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Time limit from the run's creation, such as 30m or 2h.")
    ] = None,
    suspend: Annotated[
        bool | None, typer.Option("--suspend/--resume", help="Start no further steps, or continue.")
    ] = None,
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Change a run's priority, budget or deadline, or suspend it."""
    from flowmesh_cli.verbs.manage_runs import amend_run  # noqa: PLC0415

    changes = {
        "priority": priority,
        "budgetUsd": budget_usd,
        "deadline": deadline,
        "suspend": suspend,
    }
    amend_run(run, changes=changes, place=place, as_json=json)


def repin(
    run: RunArgument = "",
    place: Target = HERE,
    json: JsonOption = False,
) -> None:
    """Move a run to newer engine versions.

    Published results stay.
    """
    from flowmesh_cli.verbs.manage_runs import repin_run  # noqa: PLC0415

    repin_run(run, place=place, as_json=json)


def resume(run: RunArgument = "", place: Target = HERE, json: JsonOption = False) -> None:
    """Continue a run suspended for stopping the control plane.

    A run is suspended if the control plane stops twice while working on it. Needs the rights of an
    administrator.
    """
    from flowmesh_cli.verbs.manage_runs import resume_run  # noqa: PLC0415

    resume_run(run, place=place, as_json=json)


def logs(
    run: RunArgument = "",
    path: StepArgument = "",
    step: StepOption = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow until the run ends.")
    ] = False,
    place: Target = HERE,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Show what the engines of a run printed."""
    from flowmesh_cli.verbs.logs import show_logs  # noqa: PLC0415

    show_logs(run, step=path or step, follow=follow, place=place, as_json=json)
