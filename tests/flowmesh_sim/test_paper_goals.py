"""The goals of the paper's evaluation: each is missed by results that miss it."""

import json
from collections import defaultdict
from math import nan
from pathlib import Path

import pytest

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.units import Digest
from flowmesh_sim.paper.bound import LowerBoundInput, zero_wait_runs
from flowmesh_sim.paper.campaign import Campaign
from flowmesh_sim.paper.goals import BOUNDS, GOALS, Goal
from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.paper.numbers import Results
from flowmesh_sim.paper.observer import StepTrace
from flowmesh_sim.paper.plan import Cell, cells, read_plan

GOAL = {goal.name: goal for goal in GOALS}


def results(figures: Figures, *others: tuple[str, Figures]) -> Results:
    """Returns results in which every cell has these figures, those of some systems aside."""
    special = dict(others)

    class Given(Campaign):
        def found(self, cell: Cell) -> dict[int, Figures]:
            return {11: defaultdict(lambda: nan, figures | special.get(cell.system, {}))}

    return Results(Given.__new__(Given), list(cells(read_plan())))


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_no_goal_is_reached_by_figures_that_are_not_numbers(goal: Goal) -> None:
    assert not goal.judge(results({})).reached


@pytest.mark.parametrize(("over", "reached"), [(1.35, True), (1.36, False)])
def test_the_distance_from_the_bound_is_a_goal_that_can_be_missed(
    over: float, reached: bool
) -> None:
    assert BOUNDS["a-64"] == 1.35
    found = results({"makespan_s": 100.0 * over, "bound_closed_s": 100.0})
    assert GOAL["Fig. 7, 8 bound"].judge(found).reached is reached


@pytest.mark.parametrize(
    ("lag_s", "usd", "latency_s", "reached"),
    [
        (60.0, 1.25, 1.0, True),
        (61.0, 1.25, 1.0, False),
        (60.0, 1.26, 1.0, False),
        (60.0, 1.25, 1.01, False),
    ],
)
def test_elasticity_is_compared_with_the_oracle(
    lag_s: float, usd: float, latency_s: float, reached: bool
) -> None:
    ours = {"lag_up_s": lag_s, "usd": usd, "latency_s": latency_s}
    found = results({"usd": 1.0, "latency_s": 1.0}, ("leased", ours))
    assert GOAL["Fig. 9 elasticity"].judge(found).reached is reached


def test_elasticity_is_ablated_by_both_measures_on_one_fleet() -> None:
    whole = {"latency_s": 1.0, "usd": 1.0, "used_usd": 1.0}
    worse = {"latency_s": 2.0, "usd": 2.0, "used_usd": 2.0}
    faster = {"latency_s": 0.6, "usd": 4.0, "used_usd": 1.0}
    ablated = [(s, worse) for s in ("no-consolidation-fixed", "random-fixed")]
    judge = GOAL["Table 3 ablation"].judge
    part = {"latency_s": 1.5, "usd": 1.1, "used_usd": 1.0}
    assert judge(results(whole, *ablated, ("flowmesh-fixed", part))).reached
    dear = judge(results(whole, *ablated, ("flowmesh-fixed", faster)))
    assert not dear.reached, "the same devices are dearer, but faster"


def key(name: str) -> ActionKey:
    return ActionKey("all", Digest(name))


def last_s(seconds: dict[str, tuple[str, float]], concurrent: int) -> float:
    """Returns when the last of runs has ended that are one action each."""
    least = {key(name): LowerBoundInput(s, s, 0.0, 0.0) for name, s in seconds.values()}
    traces = {uid: [StepTrace("only", (), (key(n),))] for uid, (n, _) in seconds.items()}
    runs = zero_wait_runs(least, traces, dict.fromkeys(traces, 0.0), concurrent)
    return max(run.end_s for run in runs)


def test_a_closed_loop_waits_for_an_end_before_the_next_run() -> None:
    seconds = {"r1": ("a", 10.0), "r2": ("b", 4.0), "r3": ("c", 5.0), "r4": ("d", 3.0)}
    assert last_s(seconds, 2) == 12.0, "r3 from 4 to 9, r4 from 9 to 12"
    assert last_s(seconds, 4) == 10.0
    assert last_s(seconds, 1) == 22.0
    assert last_s(seconds, 0) == 10.0, "no closed loop: all are submitted at 0"


def test_an_equal_action_runs_once_in_a_closed_loop() -> None:
    assert last_s(dict.fromkeys(("r1", "r2", "r3"), ("same", 7.0)), 1) == 7.0


def test_the_page_shows_the_goals_of_the_code() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "evaluation.md").read_text()
    for goal in GOALS:
        assert f"| {goal.name} | {goal.paper} | {goal.reach} |" in page, json.dumps(goal.name)
