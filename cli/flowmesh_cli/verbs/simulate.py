"""``fmesh simulate``: runs a scenario in virtual time and shows the result."""

from pathlib import Path

from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.input_file import require_file
from flowmesh_cli.views import formatting
from flowmesh_core.units import nano_usd
from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.policies import policy_named
from flowmesh_sim.run.measurements import SimulationResult
from flowmesh_sim.run.plots import draw, imported_pyplot
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import read_scenario


def simulate_file(
    path: Path,
    *,
    seed: int | None,
    policy: str,
    plot: Path | None,
    trace: Path | None,
    check: bool,
    as_json: bool,
) -> None:
    """Simulates the scenario of a file.

    Raises:
        CliError: the file cannot be read.
        SpecError: the file is not a scenario.
        FlowMeshError: a plot is wanted, and matplotlib is not installed.
        InvariantError: an invariant was violated: a bug in the fabric or the simulator.
    """
    require_file(path)
    if plot is not None:
        imported_pyplot()
    scenario = read_scenario(path)
    if policy:
        policy_named(policy)
        scenario = scenario.model_copy(update={"policy": policy})
    checker = Checker(every=1) if check else None
    result = Simulation(scenario, seed=seed, trace=trace, checker=checker).run()
    terminal = Terminal(as_json=as_json)
    if plot is not None:
        draw(result, plot)
        terminal.note(f"plot written to {plot}")
    if as_json:
        terminal.answer(result.to_json())
    else:
        show(terminal, result)


def show(terminal: Terminal, r: SimulationResult) -> None:
    """Writes a result as text."""
    ended = f"{r.succeeded} succeeded, {r.failed} failed, {r.cancelled} cancelled"
    terminal.text(f"{r.scenario}, seed {r.seed}, policy {r.policy} (simulated)")
    terminal.text(
        f"  {formatting.count(r.runs, 'run')} in {formatting.seconds(r.makespan_s)}: {ended}"
    )
    rows = [
        [name, *(formatting.seconds(values[k]) for k in ("mean", "p50", "p99"))]
        for name, values in (
            ("latency of a run", r.latency_s),
            ("until a run starts", r.queueing_s),
            ("wait of an action", r.waiting_s),
        )
    ]
    terminal.table(["", "mean", "p50", "p99"], rows, right="mean p50 p99")
    money = [formatting.usd(nano_usd(f"{v:.9f}")) for v in (r.usd, r.receipts_usd, r.fabric_usd)]
    terminal.text(f"  {money[0]}: {money[1]} on receipts, {money[2]} of the fabric")
    terminal.text(
        f"  {formatting.joules(r.joules, estimated=True)}, workers {r.utilisation:.0%} busy"
    )
    hits = sum(r.hits.values())
    terminal.text(
        f"  {formatting.count(r.executed, 'action')} executed, {formatting.count(hits, 'hit')}"
    )
    terminal.text(f"  {r.tasks_per_min:.1f} steps and {r.runs_per_min:.2f} runs a minute")
    terminal.text(f"  {r.events} events in {r.took_s:.1f}s ({r.events_per_s:,.0f} a second)")
    terminal.text(f"  trace {r.trace}")
