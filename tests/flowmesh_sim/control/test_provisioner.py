"""Simulated pools with a limited number of machines."""

from typing import Any

import pytest

from flowmesh_core.autoscaling.settings import SUPPLY_PATIENCE_MIN_S
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

ELASTIC = {"workers": 0, "maximum": 2, "autoscale": True, "stabilizationS": 300.0}
BEST, NEXT = {"name": "best", "device": "h100-nvl"}, {"name": "next", "device": "4090-48"}


def document(runs: int, **machines: int) -> dict[str, Any]:
    """A chain each minute, on two pools of which the first is preferred while it has machines."""
    pools = [
        {**pool, **ELASTIC, **({"machines": machines[pool["name"]]} if machines else {})}
        for pool in (BEST, NEXT)
    ]
    arrivals = {"kind": "every", "perMinute": 1.0}
    load = [{"shapes": ["a-chain"], "runs": runs, "variants": 100, "arrivals": arrivals}]
    return {"name": "short", "pools": pools, "load": load}


def simulated(runs: int = 12, **machines: int) -> tuple[Simulation, Any]:
    simulation = Simulation(scenario_of(document(runs, **machines)), seed=1)
    return simulation, simulation.run()


def made(simulation: Simulation) -> set[str]:
    return {worker.name.rpartition("-")[0] for worker in simulation.measures.workers}


def test_the_best_pool_is_used_if_it_has_machines() -> None:
    simulation, result = simulated(runs=1)
    assert result.succeeded == 1
    assert simulation.measures.workers[0].name.startswith("best")


def test_work_goes_to_the_next_pool_where_the_best_has_no_machine() -> None:
    simulation, result = simulated(best=0, next=2)
    assert result.succeeded == 12
    assert made(simulation) == {"next"}
    plenty = simulated(best=2, next=2)[1].latency_s
    assert result.latency_s["p99"] < plenty["p99"] + 2 * SUPPLY_PATIENCE_MIN_S


def test_demand_beyond_the_machines_of_one_pool_goes_to_the_next() -> None:
    simulation, result = simulated(best=1, next=1)
    assert result.succeeded == 12
    assert sum(w.name.startswith("best") for w in simulation.measures.workers) == 1


def test_a_released_machine_goes_to_a_pool_that_waits_for_one() -> None:
    simulation = Simulation(scenario_of(document(runs=1, best=1, next=0)), seed=1)
    simulation.run()
    (pool, _) = simulation.provisioner.pools
    (gone,) = pool.workers
    pool.resize(0)
    pool.resize(1)
    assert ([*pool.workers], pool.coming) == ([gone], 1)
    engine = simulation.fabric.engine
    engine.run(until_s=engine.now_s + 100.0, over=lambda: gone not in pool.workers)
    assert gone not in pool.workers
    engine.run(until_s=engine.now_s + 100.0, over=lambda: not pool.coming)
    assert len(pool.workers) == 1


@pytest.mark.parametrize("wanted", [0, 1])
def test_an_order_that_finds_no_machine_can_be_withdrawn(wanted: int) -> None:
    simulation, _ = simulated(runs=1, best=0, next=1)
    (pool, _) = simulation.provisioner.pools
    pool.resize(2)
    assert pool.coming == 2
    pool.resize(wanted)
    assert pool.coming == wanted
    assert not pool.workers


def test_workers_that_a_pool_has_rented_for_a_queue_are_used() -> None:
    load = [{"shapes": ["a-chain"], "runs": 40, "rows": 100, "variants": 1000}]
    took_s = {}
    for most in (1, 4):
        pool = {**BEST, **ELASTIC, "maximum": most}
        simulation = Simulation(scenario_of({"name": "queue", "pools": [pool], "load": load}))
        took_s[most] = simulation.run().makespan_s
        assert sum(worker.busy_s > 0.0 for worker in simulation.measures.workers) == most
    assert took_s[4] < 0.65 * took_s[1]
