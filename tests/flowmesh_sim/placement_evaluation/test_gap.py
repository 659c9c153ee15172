"""The account of the gap to the bound: its parts add up."""

from typing import Any

import pytest

from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.placement_evaluation.gap import covered_s, successive_s
from flowmesh_sim.placement_evaluation.measure import measure
from flowmesh_sim.policies.baselines import with_baseline
from flowmesh_sim.scenario import scenario_of

DEVICES = ("h100-nvl", "4090-48", "4090")


def figures_of(baseline: str, **load: Any) -> Figures:
    """Simulates a few workflows on up to two workers of each class."""
    pools = [{"name": f"{n}-{d}", "device": d, "workers": 2} for n, d in enumerate(DEVICES)]
    arrivals = {"kind": "poisson", "perMinute": 2}
    part = {"shapes": ["group-a"], "runs": 8, "rows": 12, "variants": 4, "arrivals": arrivals}
    document = {"name": "gap", "pools": pools, "load": [{**part, **load}]}
    changed = with_baseline(document, baseline, signal="shipped", keep_alive_s=60.0)
    return measure(scenario_of(changed), 5)


def test_spans_are_covered_once() -> None:
    assert covered_s([]) == 0.0
    assert covered_s([(0.0, 4.0), (2.0, 6.0), (8.0, 9.0), (8.0, 9.0)]) == 7.0


def test_a_moment_counts_for_the_first_layer_that_it_is_in() -> None:
    # Of ten seconds: running 2 to 5, loading 1 to 4, all.
    assert successive_s([(2.0, 5.0)], [(1.0, 4.0)], [(0.0, 10.0)]) == [3.0, 1.0, 6.0]


@pytest.mark.parametrize(
    ("baseline", "load"),
    [
        ("shipped", {}),
        ("fifo", {}),
        ("shipped", {"arrivals": {"kind": "closed", "concurrent": 3}}),
        ("always-on", {"shapes": ["b-full-sft"]}),
    ],
)
def test_the_parts_add_up_to_the_gap(baseline: str, load: dict[str, Any]) -> None:
    f = figures_of(baseline, **load)
    dollars = {k: v for k, v in f.items() if k.startswith("gap_usd_")}
    seconds = {k: v for k, v in f.items() if k.startswith("gap_s_")}
    assert sum(dollars.values()) == pytest.approx(f["usd"] - f["zero_usd"], rel=1e-4)
    assert sum(seconds.values()) == pytest.approx(f["latencies_s"] - f["zero_s"])
    assert all(value >= -1e-6 for value in dollars.values()), dollars
    assert all(value >= -1e-6 for name, value in seconds.items() if name != "gap_s_shared_device")
    assert f["gap_usd_downloads"] > 0
    assert f["gap_usd_engine_starts"] > 0


def test_an_always_on_machine_has_no_starts_of_workers() -> None:
    f = figures_of("always-on")
    assert f["gap_usd_worker_starts"] == f["gap_s_worker_starts"] == 0.0
