"""Declares ``simulate``, ``trace`` and ``replay``."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.connection.target import HERE, Target, placed
from flowmesh_cli.errors import guarded
from flowmesh_cli.options import JsonOption


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command("simulate", rich_help_panel="Plan")(guarded(simulate))
    app.command("trace", rich_help_panel="Explain")(guarded(placed(trace)))
    app.command("replay", rich_help_panel="Plan")(guarded(replay))


def simulate(
    *,
    scenario: Annotated[Path, typer.Argument(help="Scenario file (docs/simulator.md).")],
    seed: Annotated[int | None, typer.Option(help="Override the scenario's seed.")] = None,
    policy: Annotated[str, typer.Option(help="Override the scenario's policy.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw the run to this file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every event to this file.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check all invariants after every event.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Simulate a fleet and its load in virtual time."""
    from flowmesh_cli.verbs.simulate import simulate_file  # noqa: PLC0415

    simulate_file(
        scenario, seed=seed, policy=policy, plot=plot, trace=trace, check=check, as_json=json
    )


def trace(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Uids or names of runs.", show_default="the latest"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write to this file, not to standard output."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include every run that has ended.")] = False,
    place: Target = HERE,
    json: Annotated[
        bool, typer.Option("--json", help="Print errors as JSON. The trace is JSON in any case.")
    ] = False,
) -> None:
    """Write a trace of what runs took and cost, for `fmesh replay`.

    The trace contains no names and no content.
    """
    from flowmesh_cli.verbs.replay import export_trace  # noqa: PLC0415

    del json  # read by ``guarded``
    export_trace(runs or [], every=all_, out=out, place=place)


def replay(
    trace: Annotated[Path, typer.Argument(help="File written by `fmesh trace`.")],
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="File with the policy, pools and prices to replay with.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw both to this file.")] = None,
    json: JsonOption = False,
) -> None:
    """Replay recorded runs under another policy, fleet or price."""
    from flowmesh_cli.verbs.replay import replay_file  # noqa: PLC0415

    replay_file(trace, policy=policy, plot=plot, as_json=json)
