"""Simulated workers open engines ahead of work, as the real agent does."""

from typing import Any

import pytest

from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of

STEADY = {"workers": 1, "autoscale": False}


def chains(**pool: Any) -> Simulation:
    """One chain of four steps on two models, on a pool that grows from nothing, or as told."""
    elastic = {"device": "h100", "workers": 0, "maximum": 1, "autoscale": True, "start": "pod"}
    document = {
        "name": "chains",
        "pools": [{"name": "gpu", **elastic, **pool}],
        "load": [{"shapes": ["a-chain"], "runs": 1, "rows": 24}],
    }
    return Simulation(scenario_of(document))


@pytest.mark.parametrize("pool", [{}, STEADY], ids=["elastic", "steady"])
def test_the_next_models_engine_is_open_when_its_step_begins(pool: dict[str, Any]) -> None:
    ahead = chains(**pool).run()
    without = chains(**pool, holdOpen=False).run()
    assert (ahead.succeeded, without.succeeded) == (1, 1)
    assert ahead.makespan_s < without.makespan_s - 10.0
    assert ahead.executed == without.executed


def test_real_work_has_the_memory_first() -> None:
    """Only one of the two models fits: what is held ahead makes room, and everything ends."""
    result = chains(device="4090").run()
    assert result.succeeded == 1


def test_the_same_seed_gives_the_same_trace() -> None:
    assert chains().run().trace == chains().run().trace
