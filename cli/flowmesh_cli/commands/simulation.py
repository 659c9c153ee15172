"""Commands that run nothing: fleets, loads and recorded runs in virtual time."""

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
    scenario: Annotated[Path, typer.Argument(help="A scenario file; see docs/simulator.md.")],
    seed: Annotated[int | None, typer.Option(help="In place of the scenario's.")] = None,
    policy: Annotated[str, typer.Option(help="Who decides, in place of the scenario's.")] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw the run into this file.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write every event to this file.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Look at all invariants after every event.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Simulate a fleet and its load in virtual time: dollars, joules, latency, use."""
    from flowmesh_cli.verbs.simulate import simulate_file  # noqa: PLC0415

    simulate_file(
        scenario, seed=seed, policy=policy, plot=plot, trace=trace, check=check, as_json=json
    )


def trace(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Names or uids; the latest run where none is given.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here, not to stdout.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every run that has ended.")] = False,
    place: Target = HERE,
    json: Annotated[
        bool, typer.Option("--json", help="Answer errors as JSON, too; a trace always is.")
    ] = False,
) -> None:
    """Write what runs took and cost, without names and content, for `fmesh replay`."""
    from flowmesh_cli.verbs.replay import export_trace  # noqa: PLC0415

    del json  # read by ``guarded``
    export_trace(runs or [], every=all_, out=out, place=place)


def replay(
    trace: Annotated[Path, typer.Argument(help="A file that `fmesh trace` wrote.")],
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy", metavar="FILE", help="What is to be different: policy, pools, prices ..."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw both into this file.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what recorded runs would have cost and taken elsewhere, beside what they did."""
    from flowmesh_cli.verbs.replay import replay_file  # noqa: PLC0415

    replay_file(trace, policy=policy, plot=plot, as_json=json)
