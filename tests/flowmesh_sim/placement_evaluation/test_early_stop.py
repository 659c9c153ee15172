"""Members of the reference set that cannot matter any more are not simulated to the end."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from tests.flowmesh_sim.placement_evaluation.test_verdicts import LOAD

from flowmesh_sim.paper.campaign import Campaign, MeasureOf
from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.paper.plan import Cell
from flowmesh_sim.placement_evaluation import whole_set
from flowmesh_sim.placement_evaluation.early_stop import MemberLimits, limits_of
from flowmesh_sim.placement_evaluation.loads import EvaluationLoad
from flowmesh_sim.placement_evaluation.measure import measure
from flowmesh_sim.placement_evaluation.objective import OBJECTIVE
from flowmesh_sim.placement_evaluation.plan import reference_cells
from flowmesh_sim.placement_evaluation.reference_set import Member, cell_of
from flowmesh_sim.placement_evaluation.results import Compared, PlacementResults, best
from flowmesh_sim.scenario import Scenario

SMALL = EvaluationLoad("tiny", "a few", ({**LOAD.load[0], "runs": 4, "rows": 2},), ("4090",), 2)
SEEDS = (7,)
SEEDS_3 = (1, 2, 3)
DEFAULT = Member("fifo-sharing", "frozen", 300.0, ("4090",))
OTHERS = [
    Member("fifo", "hpa", 600.0, ("4090",)),
    Member("fifo-sharing", "frozen", 30.0, ("4090",)),
]


def figures(usd: float, latencies_s: float) -> Figures:
    return {"usd": usd, "latencies_s": latencies_s}


def test_a_member_matters_while_it_may_be_better_or_the_best_by_some_value_of_time() -> None:
    shipped, known = figures(1.05, 1050.0), [figures(0.5, 5000.0), figures(4.0, 100.0)]
    limits = limits_of(shipped, known)
    assert not limits.are_passed(figures(0.99, 999.0)), "it may be better in both"
    # At a quarter of v the cheap member is the best, at four times the fast one is.
    least = {factor: OBJECTIVE.times(factor) for factor in (0.25, 1.0, 4.0)}
    for one in (figures(0.5, 4000.0), figures(3.0, 300.0)):
        best_of_some = any(j.of(one) <= min(map(j.of, known)) for j in least.values())
        assert best_of_some != limits.are_passed(one)
    assert limits.are_passed(figures(4.0, 5000.0))


def test_what_a_stopped_simulation_has_come_to_is_less_than_its_figures() -> None:
    scenario = cell_of(SMALL, OTHERS[0], SEEDS).scenario
    whole = measure(scenario, 7)
    never = MemberLimits(1e9, 1e9, ())
    assert measure(scenario, 7, never)["usd"] == whole["usd"]
    stopped = measure(scenario, 7, MemberLimits(0.0, 0.0, ((1.0, 0.5 * OBJECTIVE.of(whole)),)))
    assert 0.0 < stopped["stopped_s"] < whole["makespan_s"]
    assert stopped["runs"] == whole["runs"]
    for name in ("usd", "latencies_s", "latency_s"):
        assert 0.0 < stopped[name] < whole[name]
    assert OBJECTIVE.of(stopped) > 0.5 * OBJECTIVE.of(whole)


def test_the_whole_set_has_the_same_best_member_whether_others_were_stopped_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_set, "small_set", lambda load: [DEFAULT])
    for path in (whole_set.__name__, "flowmesh_sim.placement_evaluation.results"):
        monkeypatch.setattr(f"{path}.reference_set", lambda load: [DEFAULT, *OTHERS])
    cells = list(reference_cells([SMALL], lambda load: [DEFAULT, *OTHERS], SEEDS))
    found = []
    for folder, stops in (("stopped", True), ("whole", False)):
        campaign = Campaign(tmp_path / folder, measure)
        if stops:
            whole_set.simulate_whole_set(campaign, [SMALL], SEEDS, processes=1)
        else:
            campaign.run(cells, processes=1)
        results = PlacementResults(campaign, [SMALL], cells)
        found.append(results.compared(SMALL))
        assert len(found[-1]) == 1 + len(OTHERS)
    stopped, whole = (best(compared, OBJECTIVE) for compared in found)
    assert stopped.member == whole.member
    assert stopped.is_whole
    took = {"took_s": 0.0}
    assert {**stopped.results[7], **took} == {**whole.results[7], **took}
    assert [c.is_better for c in found[0]] == [c.is_better for c in found[1]]


def test_a_member_that_was_stopped_and_leads_is_simulated_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limits were passed with each seed, but the median of what it came to is the least."""
    monkeypatch.setattr(whole_set, "small_set", lambda load: [DEFAULT])
    for path in (whole_set.__name__, "flowmesh_sim.placement_evaluation.results"):
        monkeypatch.setattr(f"{path}.reference_set", lambda load: [DEFAULT, OTHERS[0]])
    low = MemberLimits(0.0, 0.0, ())  # passed at the first look
    monkeypatch.setattr(whole_set, "limits_of", lambda shipped, members: low)
    campaign = Campaign(tmp_path, measure)
    whole_set.simulate_whole_set(campaign, [SMALL], SEEDS, processes=1)
    (figures,) = campaign.found(cell_of(SMALL, OTHERS[0], SEEDS)).values()
    assert "stopped_s" not in figures


class GivenFigures(Campaign):
    """Simulates nothing: each system's figures are a multiple of $1 and 1,000 s, by seed.

    Attributes:
        simulated: systems and seeds that would have been simulated, in order.
    """

    def __init__(self, factors: Mapping[str, Mapping[int, float]]) -> None:
        self._factors = factors
        self._found: dict[tuple[str, int], Figures] = {}
        self.simulated: list[tuple[str, int]] = []

    def run(
        self, cells: list[Cell], *, processes: int, measure_of: MeasureOf | None = None
    ) -> None:
        for cell in cells:
            for seed in cell.seeds:
                if (cell.system, seed) not in self._found:
                    simulate = partial(self._simulate, cell.system)
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(whole_set, "measure", simulate)
                        made = measure_of(cell, seed) if measure_of else simulate
                    self._found[cell.system, seed] = made(cell.scenario, seed)

    def found(self, cell: Cell) -> dict[int, Figures]:
        keys = {seed: (cell.system, seed) for seed in cell.seeds}
        return {seed: self._found[key] for seed, key in keys.items() if key in self._found}

    def _simulate(
        self, system: str, scenario: Scenario, seed: int, limits: MemberLimits | None = None
    ) -> Figures:
        del scenario, limits
        self.simulated.append((system, seed))
        factor = self._factors.get(system, dict.fromkeys(SEEDS_3, 1.0))[seed]
        return {**figures(factor, 1000.0 * factor), "latency_s": factor}


def test_a_member_that_cannot_matter_by_its_first_seeds_is_not_simulated_with_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_set, "small_set", lambda load: [DEFAULT])
    for path in (whole_set.__name__, "flowmesh_sim.placement_evaluation.results"):
        monkeypatch.setattr(f"{path}.reference_set", lambda load: [DEFAULT, *OTHERS])
    worse, mixed = (member.label for member in OTHERS)
    campaign = GivenFigures({worse: {1: 1.1, 2: 1.1}, mixed: {1: 1.1, 2: 0.9, 3: 0.9}})
    whole_set.simulate_whole_set(campaign, [SMALL], SEEDS_3, processes=1)
    assert [seed for system, seed in campaign.simulated if system == worse] == [1, 2]
    assert [seed for system, seed in campaign.simulated if system == mixed] == [1, 2, 3]
    cells = list(reference_cells([SMALL], lambda load: [DEFAULT, *OTHERS], SEEDS_3))
    compared = PlacementResults(campaign, [SMALL], cells).compared(SMALL)
    assert best(compared, OBJECTIVE).member.label == mixed
    assert [c.member.label for c in compared if c.is_better] == [mixed]


def test_a_member_that_may_be_better_in_both_is_simulated_with_all_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_set, "small_set", lambda load: [DEFAULT])
    for path in (whole_set.__name__, "flowmesh_sim.placement_evaluation.results"):
        monkeypatch.setattr(f"{path}.reference_set", lambda load: [DEFAULT, OTHERS[0]])
    second_best = dict.fromkeys(SEEDS_3, 0.8)
    factors = {DEFAULT.label: dict.fromkeys(SEEDS_3, 0.5), OTHERS[0].label: second_best}
    campaign = GivenFigures(factors)
    whole_set.simulate_whole_set(campaign, [SMALL], SEEDS_3, processes=1)
    assert [seed for system, seed in campaign.simulated if system == OTHERS[0].label] == [1, 2, 3]


def test_a_member_that_was_stopped_is_not_taken_for_the_best() -> None:
    shipped = {7: figures(1.0, 1000.0)}
    whole = Compared(DEFAULT, {7: figures(0.9, 900.0)}, shipped)
    stopped = Compared(OTHERS[0], {7: {**figures(0.5, 500.0), "stopped_s": 60.0}}, shipped)
    assert best([whole, stopped], OBJECTIVE) is whole
