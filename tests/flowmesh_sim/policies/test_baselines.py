"""The baselines of the placement evaluation: elastic ones rent and release machines."""

from typing import Any

import pytest

from flowmesh_core.errors import FlowMeshError, SpecError
from flowmesh_sim.policies.baselines import ALWAYS_ON, BASELINES, with_baseline
from flowmesh_sim.policies.signals import SIGNALS
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

DEVICES = ("h100-nvl", "4090-48", "4090")
ELASTIC = [name for name, baseline in BASELINES.items() if baseline.is_elastic]
APART = {"kind": "every", "perMinute": 0.01}
"""One workflow in ten minutes: an elastic fleet is empty in between."""


def document(**load: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "pools": [{"name": f"{n}-{d}", "device": d, "workers": 2} for n, d in enumerate(DEVICES)],
        "load": [{"shapes": ["a-vote"], "runs": 2, "rows": 2, "arrivals": APART, **load}],
        "control": {"tickS": 1.0, "syncIntervalS": 3.0},
    }


def simulated(name: str, signal: str = "shipped", **load: Any) -> tuple[Simulation, Any]:
    changed = with_baseline(document(**load), name, signal=signal, keep_alive_s=30.0)
    simulation = Simulation(scenario_of(changed), seed=3)
    result = simulation.run()
    assert result.succeeded == result.runs
    return simulation, result


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("name", ELASTIC)
def test_an_elastic_baseline_rents_machines_for_work_and_releases_them_after_it(
    name: str, signal: str
) -> None:
    simulation, _ = simulated(name, signal)
    first = [w for w in simulation.measures.workers if w.born_s < 120.0]
    second = [w for w in simulation.measures.workers if w.born_s > 6000.0]
    assert all(w.born_s > 0.0 for w in first), "they were ordered once there was work"
    assert first
    assert all(w.gone for w in first), "they were released between the two workflows"
    assert second
    assert len(first) + len(second) == len(simulation.measures.workers), "none came in between"


def test_an_always_on_baseline_releases_nothing() -> None:
    simulation, _ = simulated(ALWAYS_ON)
    workers = simulation.measures.workers
    assert len(workers) == 2 * len(DEVICES)
    assert all(w.born_s == 0.0 and not w.gone and not w.draining for w in workers)


def test_a_short_keep_alive_costs_less_than_a_long_one() -> None:
    usd = {}
    for keep_alive_s in (30.0, 600.0):
        changed = with_baseline(document(), "fifo", signal="hpa", keep_alive_s=keep_alive_s)
        usd[keep_alive_s] = Simulation(scenario_of(changed), seed=3).run().usd
    assert usd[30.0] < 0.5 * usd[600.0]


@pytest.mark.parametrize(
    ("shape", "prices", "rented"),
    [
        ("a-vote", {}, {"4090"}),
        ("a-vote", {"4090": 9.0}, {"4090-48"}),
        ("b-ppo", {}, {"4090", "4090-48"}),  # PPO of the 1B model needs more than 24 GB
    ],
)
def test_an_autoscaler_counts_a_step_in_the_cheapest_pool_that_can_run_it(
    shape: str, prices: dict[str, float], rented: set[str]
) -> None:
    changed = with_baseline(document(shapes=[shape], runs=1), "fifo", signal="hpa")
    for pool in changed["pools"]:
        if pool["device"] in prices:
            pool["priceUsdPerHour"] = prices[pool["device"]]
    simulation = Simulation(scenario_of(changed), seed=3)
    assert simulation.run().succeeded == 1
    devices = {pool.spec.device for pool in simulation.provisioner.pools if pool.waited_s}
    assert devices == rented


def test_an_autoscaler_counts_what_a_full_pool_cannot_take_in_the_next_one() -> None:
    rented = {}
    for runs in (4, 200):
        load = {"shapes": ["a-vote"], "runs": runs, "arrivals": {"kind": "at-once"}}
        changed = with_baseline(document(**load), "fifo", signal="hpa")
        simulation = Simulation(scenario_of(changed), seed=3)
        assert simulation.run().succeeded == runs
        rented[runs] = {p.spec.device for p in simulation.provisioner.pools if p.waited_s}
    assert len(rented[4]) == 1
    assert len(rented[200]) > 1


def test_fifo_shares_results_only_where_it_says_so() -> None:
    equal = {"variants": 1, "runs": 3, "arrivals": {"kind": "at-once"}}
    assert sum(simulated("fifo", **equal)[1].hits.values()) == 0
    assert sum(simulated("fifo-sharing", **equal)[1].hits.values()) > 0


def test_an_unknown_baseline_or_signal_is_named() -> None:
    with pytest.raises(FlowMeshError, match="did you mean 'fifo'"):
        with_baseline(document(), "fifa", signal="hpa")
    with pytest.raises(SpecError, match="did you mean 'hpa'"):
        scenario_of(with_baseline(document(), "fifo", signal="hpaa"))
