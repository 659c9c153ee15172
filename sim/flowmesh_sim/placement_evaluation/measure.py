"""Simulates one policy under one load with one seed: its figures, its bounds and its gap."""

from dataclasses import asdict

from flowmesh_sim.models.work_model import WorkModel
from flowmesh_sim.paper.bound import HOUR_S, bound_of, least_of
from flowmesh_sim.paper.measure import Figures, concurrent_runs
from flowmesh_sim.placement_evaluation.early_stop import MemberLimits, StoppedEarly, watch
from flowmesh_sim.placement_evaluation.gap import GapAccount
from flowmesh_sim.placement_evaluation.observer import PlacementObserver
from flowmesh_sim.placement_evaluation.rental_bound import rental_bound
from flowmesh_sim.run.measurements import SimulationResult
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import Scenario

RESTART_SHARES = (0.5, 0.25)
"""Shares of the restart time for which the rental bound is shown too."""


def measure(scenario: Scenario, seed: int, limits: MemberLimits | None = None) -> Figures:
    """Simulates, and returns all numbers that tables need.

    Args:
        scenario: what to simulate.
        seed: of the simulation.
        limits: of a member; where they are passed, what was come to by then is returned.

    Raises:
        InvariantError: an invariant is violated.
    """
    observer = PlacementObserver()
    simulation = Simulation(scenario, seed=seed, checker=observer)
    observer.workers = simulation.measures.workers
    if limits is not None:
        watch(simulation, limits)
    try:
        result = simulation.run()
    except StoppedEarly as stopped:
        return stopped.figures
    fabric, hardware = simulation.fabric, simulation.hardware
    duties = WorkModel(hardware, fabric.store.contents, fabric.catalog)
    return {
        **_usual(result),
        **_gap(simulation, observer, duties),
        **_bounds(simulation, observer, duties),
    }


def _usual(r: SimulationResult) -> Figures:
    return {
        "usd": r.usd,
        "latency_s": r.latency_s["mean"],
        "latency_p99_s": r.latency_s["p99"],
        "latencies_s": r.latency_s["mean"] * r.runs,
        "kj": r.joules / 1000.0,
        "makespan_s": r.makespan_s,
        "runs": float(r.runs),
        "succeeded": float(r.succeeded),
        "runs_per_min": r.runs_per_min,
        "utilisation": r.utilisation,
        "took_s": r.took_s,
    }


def _gap(simulation: Simulation, observer: PlacementObserver, duties: WorkModel) -> Figures:
    devices = list(dict.fromkeys(p.spec.device for p in simulation.provisioner.pools))
    least = least_of(observer.first, simulation.hardware, duties, devices)
    account = GapAccount(observer, least, simulation.hardware, duties)
    dollars = asdict(account.dollars(_paid_until_s(simulation)))
    ended_s = {uid: ended_s for uid, (_, ended_s) in simulation.measures.statuses.items()}
    seconds = asdict(account.seconds(simulation.fabric.submitted_s, ended_s))
    return {
        **{f"gap_usd_{name}": value for name, value in dollars.items()},
        **{f"gap_s_{name}": value for name, value in seconds.items()},
        "zero_usd": account.bound_usd,
        "zero_s": account.bound_s,
    }


def _paid_until_s(simulation: Simulation) -> dict[str, float]:
    """Returns until when each worker was billed, in virtual seconds."""
    control = simulation.fabric.control
    assert control is not None
    metered = {
        name: worker.meter.billed_nanousd / worker.shape.price_nanousd_per_hour * HOUR_S
        for name, worker in control.machine.state.workers.items()
    }
    return {
        w.name: w.left_s if w.gone else w.billed_since_s + metered.get(w.name, 0.0)
        for w in simulation.measures.workers
    }


def _bounds(simulation: Simulation, observer: PlacementObserver, duties: WorkModel) -> Figures:
    counts: dict[str, int] = {}
    for pool in simulation.provisioner.pools:
        counts[pool.spec.device] = pool.spec.maximum or pool.spec.workers
    submitted_s, hardware = simulation.fabric.submitted_s, simulation.hardware
    concurrent = concurrent_runs(simulation.scenario)
    old = bound_of(
        observer.first, observer.traces, submitted_s, hardware, duties, counts, concurrent
    )
    found = {
        "bound_usd": old.usd,
        "bound_latency_s": old.latency_s,
        "bound_work_s": old.work_s,
        "bound_closed_s": old.closed_s,
    }
    for name in counts:
        rental = rental_bound(
            observer.first,
            observer.traces,
            submitted_s,
            hardware,
            duties,
            hardware.devices[name],
            concurrent=concurrent,
            shares=RESTART_SHARES,
        )
        if rental is None:
            continue
        parts = {
            "usd": rental.usd,
            "latency_s": rental.latency_s,
            "running_s": rental.rented.running_s,
            "idle_s": rental.rented.idle_s,
            "starts_s": rental.rented.starts_s,
            "starts": float(rental.rented.starts),
            **{f"restart_{part}": value for part, value in asdict(rental.restart).items()},
            **{f"usd_x{share:g}": usd for share, usd in rental.usd_by_share.items()},
        }
        found |= {f"rental_{name}_{part}": value for part, value in parts.items()}
    return found
