"""Simulations do not change: equal scenarios and seeds give the recorded traces.

A difference here is a change of behaviour. Where it is meant, ``make golden`` records them anew.
"""

import pytest
from tests.golden.traces import (
    SEEDS,
    example_names,
    example_trace,
    read_traces,
    soak_trace,
)

LONG = {"bad-day", "elastic", "group-a"}


def test_every_example_and_every_seed_is_recorded() -> None:
    traces = read_traces()
    assert sorted(traces.examples) == example_names()
    assert list(traces.soak) == [str(seed) for seed in SEEDS]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in example_names()
    ],
)
def test_an_example_scenario_gives_the_recorded_trace(name: str) -> None:
    assert example_trace(name) == read_traces().examples[name]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_random_scenario_of_a_seed_gives_the_recorded_trace(seed: int) -> None:
    assert soak_trace(seed) == read_traces().soak[str(seed)]
