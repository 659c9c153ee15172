"""The rental bound, by examples that can be checked by hand, and against simulations."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_sim.models.download_rates import UNLIMITED
from flowmesh_sim.models.work_model import WorkModel
from flowmesh_sim.paper.observer import EvaluationObserver
from flowmesh_sim.placement_evaluation.rental_bound import (
    BusyRun,
    RentalBound,
    RestartTime,
    envelope,
    rental_bound,
    rented_time,
)
from flowmesh_sim.run.measurements import SimulationResult
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

RESTART = RestartTime(pod_s=3.0, agent_s=2.0, process_s=12.0, load_s=6.0, capture_s=20.0)


def busy(*times: tuple[float, float]) -> list[BusyRun]:
    return [BusyRun(start, end, RESTART) for start, end in times]


def test_a_worker_is_paid_while_a_run_is_in_progress_and_for_its_first_start() -> None:
    assert RESTART.paid_s == 40.0, "2 + 12 + 6 + 20; the pod's 3 s are not paid"
    found = rented_time(busy((100.0, 110.0)))
    assert (found.running_s, found.idle_s, found.starts_s) == (10.0, 0.0, 40.0)


def test_runs_beside_each_other_are_paid_once() -> None:
    # 0 to 10, 4 to 12 and 6 to 8: one worker from 0 to 12.
    found = rented_time(busy((0.0, 10.0), (4.0, 12.0), (6.0, 8.0)))
    assert (found.running_s, found.idle_s, found.starts) == (12.0, 0.0, 1)


def test_a_gap_costs_no_more_than_a_start() -> None:
    # Gaps of 30 s (idle), 40 s (idle) and 50 s (a start of 40 s).
    found = rented_time(busy((0.0, 10.0), (40.0, 50.0), (90.0, 95.0), (145.0, 150.0)))
    assert (found.running_s, found.idle_s) == (30.0, 70.0)
    assert (found.starts, found.starts_s) == (2, 80.0)
    assert found.total_s == 180.0


def test_a_quicker_start_makes_gaps_cheaper() -> None:
    runs = busy((0.0, 10.0), (40.0, 50.0))
    assert rented_time(runs).total_s == 20.0 + 40.0 + 30.0
    assert rented_time(runs, 0.5).total_s == 20.0 + 20.0 + 20.0
    assert rented_time(runs, 0.25).total_s == 20.0 + 10.0 + 10.0


def test_a_run_of_which_everything_is_stored_needs_no_worker() -> None:
    assert rented_time(busy((5.0, 5.0))).total_s == 0.0


def test_the_envelope_has_the_points_that_none_is_better_than() -> None:
    points = {"a": (1.0, 9.0), "b": (2.0, 5.0), "c": (3.0, 6.0), "d": (4.0, 1.0)}
    assert list(envelope(points)) == ["a", "b", "d"]


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0.1, 300)), min_size=1, max_size=30),
    st.floats(0.1, 200),
)
def test_rented_time_lies_between_the_runs_and_an_always_on_worker(
    runs: list[tuple[float, float]], restart_s: float
) -> None:
    found = [BusyRun(s, s + d, RestartTime(process_s=restart_s)) for s, d in runs]
    rented = rented_time(found)
    first, last = min(r.start_s for r in found), max(r.end_s for r in found)
    assert max(d for _, d in runs) <= rented.running_s + 1e-6
    assert rented.total_s <= last - first + restart_s + 1e-6
    assert rented_time(found, 0.5).total_s <= rented.total_s + 1e-6


INSTANT = {
    "provisioning.pod_s": 0.0,
    "provisioning.agent_s": 0.0,
    "start.process_s": 0.0,
    "start.host_process_s": 0.0,
    "start.capture_s": 0.0,
    "start.load_bytes_per_s": 1e18,
    **UNLIMITED,
}
"""Nothing starts, loads or is fetched: a simulated run is as near to the bound as it can be."""


def simulated(
    shape: str, device: str, arrivals: str, seed: int, facts: dict[str, float]
) -> tuple[SimulationResult, Callable[[str], RentalBound | None]]:
    """Simulates a few runs on one class, and returns the rental bound of any class beside it."""
    pool = {"name": "only", "device": device, "workers": 0, "maximum": 4, "autoscale": True}
    pace = {"kind": arrivals, "perMinute": 0.7, "concurrent": 3}
    load = {"shapes": [shape], "runs": 6, "rows": 12, "variants": 4, "arrivals": pace}
    pools = [{**pool, "stabilizationS": 5.0}]
    document = {"name": "bound", "pools": pools, "load": [load], "facts": facts}
    observer = EvaluationObserver()
    simulation = Simulation(scenario_of(document), seed=seed, checker=observer)
    result = simulation.run()
    fabric, hardware = simulation.fabric, simulation.hardware
    duties = WorkModel(hardware, fabric.store.contents, fabric.catalog)
    return result, lambda name: rental_bound(
        observer.first,
        observer.traces,
        fabric.submitted_s,
        hardware,
        duties,
        hardware.devices[name],
        concurrent=3 if arrivals == "closed" else 0,
    )


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(["h100", "4090"]),
    st.sampled_from(["poisson", "closed"]),
    st.integers(0, 50),
    st.sampled_from([INSTANT, {}]),
)
def test_no_simulated_run_is_below_the_rental_bound(
    device: str, arrivals: str, seed: int, facts: dict[str, float]
) -> None:
    result, bound_of = simulated("group-a", device, arrivals, seed, facts)
    bound = bound_of(device)
    assert bound is not None
    assert result.latency_s["mean"] >= bound.latency_s
    if facts == INSTANT:  # else a policy may have saved dollars by letting runs wait
        assert result.usd >= bound.usd


def test_a_class_without_the_memory_for_an_action_has_no_bound() -> None:
    result, bound_of = simulated("b-ppo", "h100", "closed", 1, {})
    assert result.succeeded == 6
    assert bound_of("h100") is not None
    assert bound_of("4090") is None
