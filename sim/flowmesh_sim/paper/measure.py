"""Simulates one cell with one seed and returns its measurements as plain numbers."""

from collections import Counter

from flowmesh_sim.models.work_model import WorkModel
from flowmesh_sim.paper.bound import bound_of
from flowmesh_sim.paper.observer import EvaluationObserver
from flowmesh_sim.run.measurements import SimulationResult
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import Scenario

HOUR_S = 3600.0
Figures = dict[str, float]


def measure(scenario: Scenario, seed: int) -> Figures:
    """Simulates, and returns all numbers that tables and plots need.

    Raises:
        InvariantError: an invariant is violated.
    """
    observer = EvaluationObserver()
    simulation = Simulation(scenario, seed=seed, checker=observer)
    observer.workers = simulation.measures.workers
    result = simulation.run()
    return {
        **_usual(result),
        **_use(simulation),
        **_bound(simulation, observer),
        **_failures(scenario, observer),
        **_elasticity(simulation, observer),
    }


def _usual(r: SimulationResult) -> Figures:
    usd, mean_s = r.usd, r.latency_s["mean"]
    return {
        "latency_s": mean_s,
        "latency_p50_s": r.latency_s["p50"],
        "latency_p99_s": r.latency_s["p99"],
        "queueing_s": r.queueing_s["mean"],
        "waiting_s": r.waiting_s["mean"],
        "usd": usd,
        "receipts_usd": r.receipts_usd,
        "kj": r.joules / 1000.0,
        "cdp": usd * mean_s,
        "edp": r.joules / 1000.0 * mean_s,
        "makespan_s": r.makespan_s,
        "steps_per_min": r.tasks_per_min,
        "runs_per_min": r.runs_per_min,
        "executed": float(r.executed),
        "hits": float(sum(r.hits.values())),
        "utilisation": r.utilisation,
        "worker_hours": r.worker_hours,
        "succeeded": float(r.succeeded),
        "runs": float(r.runs),
        "took_s": r.took_s,
    }


def _use(simulation: Simulation) -> Figures:
    """Returns the cost of the time in which workers had attempts, from their assignment."""
    devices = {p.spec.name: p.spec.device for p in simulation.provisioner.pools}
    hourly = simulation.hardware.devices
    used = sum(
        w.held_s * float(hourly[devices[w.shape.pool]].facts.price_usd_h) / HOUR_S
        for w in simulation.measures.workers
    )
    return {"used_usd": used}


def _bound(simulation: Simulation, observer: EvaluationObserver) -> Figures:
    counts = Counter[str]()
    for pool in simulation.provisioner.pools:
        counts[pool.spec.device] += pool.spec.maximum or pool.spec.workers
    fabric = simulation.fabric
    duties = WorkModel(simulation.hardware, fabric.store.contents, fabric.catalog)
    found = bound_of(
        observer.first,
        observer.traces,
        fabric.submitted_s,
        simulation.hardware,
        duties,
        dict(counts),
        concurrent_runs(simulation.scenario),
    )
    return {
        "bound_latency_s": found.latency_s,
        "bound_makespan_s": found.makespan_s,
        "bound_work_s": found.work_s,
        "bound_closed_s": found.closed_s,
        "bound_usd": found.usd,
    }


def concurrent_runs(scenario: Scenario) -> int:
    """Returns the runs at a time of a scenario that is one closed loop; 0 for any other."""
    if len(scenario.load) != 1 or scenario.load[0].arrivals.kind != "closed":
        return 0
    return scenario.load[0].arrivals.concurrent


def _failures(scenario: Scenario, observer: EvaluationObserver) -> Figures:
    crashes = [f.at_s for f in scenario.faults if f.kind == "crash" and f.at_s is not None]
    noticed = sorted(observer.lost.values())
    firsts: dict[str, float] = {}
    repeated = 0
    for short in observer.short:
        repeated += short.known_s > firsts.setdefault(short.signature, short.known_s)
    took = [s.took_s for s in observer.short if s.known_s == firsts[s.signature]]
    return {
        "detection_s": noticed[0] - crashes[0] if crashes and noticed else 0.0,
        "falsely_lost": float(observer.falsely),
        "short": float(len(observer.short)),
        "short_again": float(repeated),
        "short_known_s": sum(took) / len(took) if took else 0.0,
    }


def _elasticity(simulation: Simulation, observer: EvaluationObserver) -> Figures:
    waited = [s for pool in simulation.provisioner.pools for s in pool.waited_s]
    left = [w.left_s - w.freed_s for w in simulation.measures.workers if w.gone and w.draining]
    return {
        "ordered": float(len(waited)),
        "lag_up_s": sum(waited) / len(waited) if waited else 0.0,
        "lag_down_s": sum(left) / len(left) if left else 0.0,
        "peak_workers": float(observer.peak_workers),
    }
