"""How near a decision's sum of utilities comes to the exact optimum."""

import pytest
from tests.flowmesh_core.placement.instances import random_snapshot
from tests.flowmesh_core.placement.oracle import brute_force, instance, optimum, value_of

from flowmesh_core.costmodel import CostModel
from flowmesh_core.placement import decide


def solved(seed, actions, workers, signatures):
    view = random_snapshot(seed, actions, workers, signatures)
    decision = decide(view, CostModel())
    problem = instance(view, CostModel(), decision)
    return problem, value_of(problem, view, decision)


@pytest.mark.parametrize("seed", range(40))
def test_a_few_actions_are_placed_as_well_as_by_exhaustive_search(seed):
    problem, value = solved(seed, actions=4, workers=3, signatures=2)
    best = brute_force(problem)
    assert value <= best + 1e-6
    assert value >= 0.99 * best


@pytest.mark.parametrize("seed", range(12))
def test_the_solver_agrees_with_an_exhaustive_search(seed):
    problem, _ = solved(seed, actions=4, workers=3, signatures=2)
    if problem.served:
        assert optimum(problem) == pytest.approx(brute_force(problem), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_actions_on_fifty_workers_reach_99_percent_of_the_optimum(seed):
    problem, value = solved(seed, actions=100, workers=50, signatures=(8, 30)[seed % 2])
    best = optimum(problem)
    assert len(problem.served) > 50
    assert value <= best * (1 + 1e-3)
    assert value >= 0.99 * best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_scarce_workers_reach_99_percent_of_the_optimum(seed):
    problem, value = solved(seed, actions=100, workers=10, signatures=8)
    assert value >= 0.99 * optimum(problem)
