"""Workers that load engines before work comes: what the agent's prewarming saves."""

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
def test_the_next_models_engine_is_loaded_when_its_step_starts(pool: dict[str, Any]) -> None:
    ahead = chains(**pool).run()
    without = chains(**pool, prewarm=False).run()
    assert (ahead.succeeded, without.succeeded) == (1, 1)
    assert ahead.makespan_s < without.makespan_s - 10.0
    assert ahead.executed == without.executed


def test_a_run_completes_even_if_only_one_of_its_models_fits_at_a_time() -> None:
    assert chains(device="4090").run().succeeded == 1
