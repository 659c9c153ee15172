"""Commands that run nothing: fleets and loads in virtual time."""

from pathlib import Path
from typing import Annotated

import typer

from flowmesh_cli.failing import guarded
from flowmesh_cli.options import JsonOption


def add_to(app: typer.Typer) -> None:
    """Registers the commands."""
    app.command("simulate", rich_help_panel="Plan")(guarded(simulate))


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
    from flowmesh_cli.simulating import simulate_file  # noqa: PLC0415

    simulate_file(
        scenario, seed=seed, policy=policy, plot=plot, trace=trace, check=check, as_json=json
    )
