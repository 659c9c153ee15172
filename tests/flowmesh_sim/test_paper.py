"""The paper's evaluation: its cells, its bound, its cache and its page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.campaign import Campaign, perform
from flowmesh_sim.paper.goals import GOALS, goals
from flowmesh_sim.paper.measure import Figures, measure
from flowmesh_sim.paper.numbers import Missing, Results, ratio, spread
from flowmesh_sim.paper.page import fill, write
from flowmesh_sim.paper.plan import Cell, cells, changed, read_plan

ROOT = Path(__file__).parent.parent.parent


def tiny(cell: Cell, runs: int = 4) -> Cell:
    """Returns the cell with a few small workflows."""
    document = json.loads(json.dumps(cell.document))
    document["load"][0] |= {"runs": runs, "rows": 2}
    return replace(cell, document=document, seeds=(11,))


def cell_of(experiment: str, system: str, **fields: Any) -> Cell:
    plan = read_plan()
    return next(
        c
        for c in cells(plan)
        if (c.experiment, c.system) == (experiment, system)
        and all(getattr(c, k) == v for k, v in fields.items())
    )


def figures_of(experiment: str, system: str, **fields: Any) -> Figures:
    return measure(tiny(cell_of(experiment, system, **fields)).scenario, 11)


@pytest.fixture(scope="module")
def compared() -> dict[str, Figures]:
    """The results of every system of figure 5, on a few workflows."""
    systems = [c.system for c in cells(read_plan()) if c.experiment == "fig5"]
    return {system: figures_of("fig5", system) for system in systems}


def test_every_cell_is_a_scenario_and_no_two_of_an_experiment_have_one_name() -> None:
    found = list(cells(read_plan()))
    assert all(cell.scenario for cell in found)
    assert len({c.label for c in found}) == len(found)
    assert all(len(c.seeds) == 10 for c in found if c.experiment != "sensitivity")


def test_no_system_is_better_than_the_bound(compared: dict[str, Figures]) -> None:
    for system, f in compared.items():
        assert f["succeeded"] == f["runs"] == 4, system
        assert 0 < f["bound_latency_s"] <= f["latency_s"], system
        assert 0 < f["bound_makespan_s"] <= f["makespan_s"], system
        assert 0 < f["bound_work_s"] <= f["makespan_s"] + 1e-6, system
        assert 0 < f["bound_usd"] <= f["used_usd"] <= f["usd"], system


def test_only_flowmesh_shares_results_and_only_elastic_systems_release_workers(
    compared: dict[str, Figures],
) -> None:
    for system, f in compared.items():
        assert (f["ordered"] > 0) == (system in {"flowmesh", "flowmesh-cost"}), system
        assert f["peak_workers"] <= 6
        if not system.startswith("flowmesh"):
            assert f["hits"] == 0, system
    assert compared["flowmesh"]["usd"] < compared["flowmesh-fixed"]["usd"]


def test_a_crash_is_detected_and_a_silence_shorter_than_the_watchdog_is_ignored() -> None:
    cell = cell_of("table4", "flowmesh-fixed", variant="crash")
    crash = measure(tiny(cell, runs=30).scenario, 11)
    assert 0 < crash["detection_s"] < 15
    noise = figures_of("table4", "flowmesh-fixed", variant="noise")
    assert noise["falsely_lost"] == 0


def test_a_wrong_resource_specification_costs_only_one_failure() -> None:
    cell = tiny(cell_of("table4", "flowmesh-fixed", variant="wrong"), runs=3)
    cell.document["load"][0] |= {"shapes": ["a-tight"], "variants": 100}
    cell.document["load"][0]["arrivals"] = {"kind": "every", "perMinute": 0.2}
    f = measure(cell.scenario, 11)
    assert f["succeeded"] == 3
    assert f["short"] == 1, "the first of the signature pays, and no other"
    assert f["short_again"] == 0


def test_completed_simulations_are_not_repeated(tmp_path: Path) -> None:
    cell = tiny(cell_of("fig7", "flowmesh-fixed", load="a-64", workers=8), runs=2)
    campaign = Campaign(tmp_path)
    (job,) = campaign.missing([cell, replace(cell, experiment="other")])
    perform(job)
    assert campaign.missing([cell]) == []
    assert campaign.found(cell)[11]["runs"] == 2
    other = tiny(cell, runs=3)
    assert [j.path for j in campaign.missing([other])] != [job.path]


def test_a_failed_simulation_is_named(tmp_path: Path) -> None:
    cell = tiny(cell_of("fig5", "fifo"))
    cell.document["limitS"] = 60.0
    with pytest.raises(FlowMeshError, match="fig5 a 6 workers fifo, seed 11"):
        Campaign(tmp_path).run([cell], processes=1)


def test_a_page_is_written_from_results_and_lists_missing_ones(
    tmp_path: Path, compared: dict[str, Figures]
) -> None:
    page = tmp_path / "evaluation.md"
    page.write_text((ROOT / "docs/evaluation.md").read_text())
    plan, found = read_plan(), list(cells(read_plan()))
    campaign = Campaign(tmp_path / "cache")
    assert "fig5" in write(page, Results(campaign, found), plan)
    for cell in found:
        for seed in cell.seeds[:2]:
            figures = compared.get(cell.system, compared["flowmesh"])
            campaign.path(cell, seed).write_text(json.dumps(figures))
    assert write(page, Results(campaign, found), plan) == []
    text = page.read_text()
    assert "| not simulated" not in text
    assert "2 seeds." in text
    assert {p.name for p in (tmp_path / "pictures").iterdir()} >= {"evaluation-fig5.png"}
    again = page.read_text()
    write(page, Results(campaign, found), plan)
    assert page.read_text() == again


def test_markers_that_are_missing_are_named() -> None:
    with pytest.raises(FlowMeshError, match="no markers for fig5"):
        fill("nothing", "fig5", "a table")


def test_a_spread_of_ten_leaves_out_the_extremes_and_ratios_go_seed_by_seed() -> None:
    ten = spread(float(n) for n in range(10))
    assert (ten.median, ten.low, ten.high) == (4.5, 1.0, 8.0)
    assert (spread([1.0, 5.0]).low, spread([1.0, 5.0]).high) == (1.0, 5.0)
    above, below = {1: {"x": 4.0}, 2: {"x": 9.0}}, {1: {"x": 2.0}, 2: {"x": 3.0}}
    assert ratio(above, below, "x").median == 2.5
    with pytest.raises(Missing):
        ratio(above, {3: {"x": 1.0}}, "x")


def test_a_constant_is_doubled_and_a_logarithm_is_added_to() -> None:
    assert changed("start.process_s", 12.0, 2.0) == 24.0
    assert changed("datasets.mmlu.answer_mu", 5.0, 2.0) == pytest.approx(5.693, abs=1e-3)


def test_a_goal_without_simulations_keeps_its_text_on_the_page(
    tmp_path: Path,
) -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()
    nothing = Results(Campaign(tmp_path), list(cells(read_plan())))
    kept = goals(nothing, page)
    assert kept in page
    assert "not simulated" not in kept
    assert goals(nothing).count("not simulated") == len(GOALS)
